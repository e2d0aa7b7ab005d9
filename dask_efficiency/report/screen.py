"""A live view in a terminal: what a cluster did in the last seconds, cut to the screen's size."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from dask_efficiency.buckets import Breakdown, Bucket
from dask_efficiency.report.bar import cells, letters, packed
from dask_efficiency.report.colours import COLOURS, LETTERS
from dask_efficiency.report.figures import apportion, format_seconds, format_share, harmless, shorten
from dask_efficiency.report.live import Change, WorkerChange
from dask_efficiency.report.lost_time import Part
from dask_efficiency.report.verdict import verdict

if TYPE_CHECKING:
    from rich.text import Text

NARROWEST = 30
LONGEST_NAME = 24
SHORTEST_BAR = 10
NAMES_IN_A_LINE = 3
FEW_WORKERS = 3
#: Around the rows of workers: a blank, the heads, and what is said of the workers left out.
SPARE_LINES = 3

#: Columns beside the worker's name and bar: head and width.
_COLUMNS = {"threads": 7, "useful": 6, "largest loss": 22, "running": 8, "tasks": 5}
#: The order in which a narrow screen does without them.
_DISPENSABLE = ("tasks", "running", "threads", "largest loss")


def parts(did: Breakdown) -> tuple[Part, ...]:
    """All of the thread time in the buckets' own order, so that a bar keeps its order as it changes."""
    ns = did.to_nanoseconds()
    tenths = apportion(list(ns.values()), 1000)
    return tuple(Part(Bucket(bucket), ns[bucket], share) for bucket, share in zip(ns, tenths, strict=True))


def plain(change: Change, *, width: int = 80, height: int | None = None) -> str:
    """The view as ASCII text.

    Parameters
    ----------
    change
        What is shown.
    width
        In characters; less than 30 counts as 30.
    height
        In lines: workers that do not fit are left out; None for all of them.
    """
    width = max(width, NARROWEST)
    shown = parts(change.did)
    lines = [*_wrapped(_head(change), width), *_wrapped(_verdict(change), width)]
    if shown:
        items = [f"{LETTERS[part.bucket]} {item}" for part, item in zip(shown, _legend(change, shown), strict=True)]
        lines.append(f"[{letters(shown, width - 2)}]")
        lines += ["  ".join(items[i] for i in line) for line in packed([len(item) for item in items], width)]
    lines += _wrapped(_gpus(change), width)
    lines += _wrapped(_events(change), width)
    lines += _if_room(_wrapped(_life(change), width), change, None if height is None else height - len(lines))
    workers, left_out = _fitting(change, len(change.workers) if height is None else height - len(lines) - SPARE_LINES)
    if workers:
        names = [_ascii(harmless(worker.name)) for worker in workers]
        columns, name_width, bar_width = _layout(max(map(len, names)), width)
        heads = ["worker".ljust(name_width), *(_justified(head, head) for head in columns)]
        lines += ["", "  ".join([heads[0], " " * bar_width, *heads[1:]])]
        for worker, name in zip(workers, names, strict=True):
            bar = f"[{letters(parts(worker.did), bar_width - 2)}]" if worker.did else ""
            figures = [_justified(column, _cell(worker, column)) for column in columns]
            lines.append("  ".join([shorten(name, name_width).ljust(name_width), bar.ljust(bar_width), *figures]))
    lines += _wrapped(left_out, width)
    return "\n".join(_ascii(line).rstrip() for line in lines[:height])


def coloured(change: Change, *, width: int, height: int) -> Text:
    """The view as one text of rich, with at most ``height`` lines of at most ``width`` cells."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    width = max(width, NARROWEST)
    shown = parts(change.did)
    lines = [Text(line, style="bold") for line in _wrapped(_head(change), width, ascii_only=False)]
    lines += [Text(line) for line in _wrapped(_verdict(change), width)]
    if shown:
        items = [
            Text.assemble(("■ ", COLOURS[part.bucket]), item)
            for part, item in zip(shown, _legend(change, shown), strict=True)
        ]
        lines.append(_bar(change.did, width))
        lines += [Text("  ").join(items[i] for i in line) for line in packed([len(item) for item in items], width)]
    lines += [Text(line) for line in _wrapped(_gpus(change), width)]
    lines += [Text(line) for line in _wrapped(_events(change), width, ascii_only=False)]
    life = _if_room(_wrapped(_life(change), width), change, height - len(lines))
    lines += [Text(line, style="dim") for line in life]
    workers, left_out = _fitting(change, height - len(lines) - SPARE_LINES)
    if workers:
        names = [harmless(worker.name) for worker in workers]
        columns, name_width, bar_width = _layout(max(map(cell_len, names)), width)
        heads = ["worker".ljust(name_width), " " * bar_width, *(_justified(head, head) for head in columns)]
        lines += [Text(), Text("  ".join(heads), style="bold")]
        for worker, name in zip(workers, names, strict=True):
            cut = name if cell_len(name) <= name_width else set_cell_size(name, name_width - 1) + "…"
            row = Text(set_cell_size(cut, name_width) + "  ")
            row.append_text(_bar(worker.did, bar_width) if worker.did else Text(" " * bar_width))
            for column in columns:
                row.append("  " + _justified(column, _cell(worker, column)), style=_style(worker, column))
            lines.append(row)
    lines += [Text(line, style="dim") for line in _wrapped(left_out, width)]
    text = Text("\n", no_wrap=True, overflow="crop").join(lines[:height])
    text.no_wrap, text.overflow = True, "crop"
    return text


def _bar(did: Breakdown, width: int) -> Text:
    from rich.text import Text

    shown = parts(did)
    bar = Text()
    for cell, run in groupby(cells([part.nanoseconds for part in shown], width)):
        colours = COLOURS[shown[cell.left].bucket], COLOURS[shown[cell.right].bucket]
        bar.append(cell.character * len(list(run)), style=f"{colours[0]} on {colours[1]}")
    return bar


def _style(worker: WorkerChange, column: str) -> str:
    loss = worker.largest_loss
    return COLOURS[loss] if column == "largest loss" and loss is not None else ""


def _head(change: Change) -> str:
    count = len(change.workers) + change.more_workers
    waiting = sum(worker.tasks for worker in change.workers)
    return (
        f"{harmless(change.source)}  {count} {'worker' if count == 1 else 'workers'}, "
        f"{change.nthreads} {'thread' if change.nthreads == 1 else 'threads'}, "
        f"{waiting} {'task' if waiting == 1 else 'tasks'} on them"
    )


def _verdict(change: Change) -> str:
    if not change.did:
        return f"No heartbeat came in {format_seconds(change.seconds)}."
    if change.seconds >= change.life.window_seconds:
        return ""  # the sentence on its life says it
    return f"Last {format_seconds(change.seconds)}: {verdict(change.report)}."


def _legend(change: Change, shown: Sequence[Part]) -> list[str]:
    """How many threads did what; the figures add up to the number of threads."""
    tenths = apportion([part.nanoseconds for part in shown], 10 * change.nthreads)
    return [f"{part.bucket} {n / 10:.1f}" for part, n in zip(shown, tenths, strict=True)]


def _gpus(change: Change) -> str:
    shares = ", ".join(f"{name} {format_share(share)}" for name, share in change.gpu_shares.items())
    return f"{change.gpus} GPU{'s' * (change.gpus > 1)}: {shares}." if shares else ""


def _events(change: Change) -> str:
    said = []
    if change.tasks:
        said.append("Tasks " + ", ".join(f"{outcome} {n}" for outcome, n in change.tasks.items()))
    for what, names in (("Joined", change.joined), ("Left", change.left)):
        if names:
            more = f" and {len(names) - NAMES_IN_A_LINE} more" if len(names) > NAMES_IN_A_LINE else ""
            listed = ", ".join(shorten(harmless(name), LONGEST_NAME) for name in names[:NAMES_IN_A_LINE])
            said.append(f"{what}: {listed}{more}")
    return ". ".join(said) + "." * bool(said)


def _life(change: Change) -> str:
    return f"Since {format_seconds(change.life.window_seconds)} ago: {verdict(change.life)}."


def _if_room(lines: list[str], change: Change, rows: int | None) -> list[str]:
    """The lines, if a few workers fit under them: on a small screen those are more worth."""
    wanted = min(len(change.workers), FEW_WORKERS) + SPARE_LINES
    return lines if rows is None or not change.did or rows - len(lines) >= wanted else []


def _fitting(change: Change, rows: int) -> tuple[list[WorkerChange], str]:
    """The workers that there is room for, and what to say of the others."""
    count = len(change.workers)
    rows = max(rows, 0)
    if count <= rows:
        more = f"{change.more_workers} more workers, which a live view does not tell apart" * bool(change.more_workers)
        return list(change.workers), more
    least = sorted(change.workers, key=lambda worker: (math.isnan(worker.useful_share), worker.useful_share))[:rows]
    return least, f"the {rows} least useful of {count + change.more_workers} workers" if rows else ""


def _layout(name_length: int, width: int) -> tuple[list[str], int, int]:
    """Columns that fit, and the widths of the name and of the bar."""
    name = max(min(name_length, LONGEST_NAME, width // 3), len("worker"))
    columns = list(_COLUMNS)
    for dispensable in ("", *_DISPENSABLE):
        columns = [column for column in columns if column != dispensable]
        bar = width - name - 2 - sum(2 + _COLUMNS[column] for column in columns)
        if bar >= SHORTEST_BAR:
            break
    return columns, name, bar


def _cell(worker: WorkerChange, column: str) -> str:
    if column == "threads":
        return str(worker.nthreads)
    if column == "useful":
        return format_share(worker.useful_share)
    if column == "running":
        return format_seconds(worker.running_seconds) if worker.running_seconds else ""
    if column == "tasks":
        return str(worker.tasks)
    loss = worker.largest_loss
    if loss is None:
        return _absence(worker)
    with_work = worker.did.total_ns - worker.did.ns(Bucket.NO_WORK)
    return f"{loss} {format_share(worker.did.ns(loss) / with_work)}"


def _absence(worker: WorkerChange) -> str:
    """What to say of a worker that lost nothing."""
    if not worker.did:
        return "no heartbeat"
    return str(Bucket.NO_WORK) if math.isnan(worker.useful_share) else ""


def _justified(column: str, text: str) -> str:
    size = _COLUMNS[column]
    return shorten(text, size).ljust(size) if column == "largest loss" else text.rjust(size)


def _wrapped(text: str, width: int, *, ascii_only: bool = True) -> list[str]:
    return textwrap.wrap(_ascii(text) if ascii_only else text, width, break_on_hyphens=False) if text else []


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")
