"""Live view in a terminal, cut to the screen's size."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.live.last_seconds import causes_text, memory_text, moved_text, not_sampled_text
from dask_efficiency.live.top_view import TopView
from dask_efficiency.report.findings import in_a_line
from dask_efficiency.report.run_progress import left_text
from dask_efficiency.report.stalls import STALLED
from dask_efficiency.report.turnover import killer_text
from dask_efficiency.show.drawn_buckets import COLOURS, LETTERS, BucketShare, parts_of
from dask_efficiency.show.figures import (
    NAMES_IN_A_LINE,
    apportion,
    format_count,
    format_seconds,
    format_share,
    harmless,
    shorten,
    upper_first,
)
from dask_efficiency.show.terminal import ascii_text, bar_letters, coloured_bar, packed_lines

if TYPE_CHECKING:
    from rich.text import Text

#: Characters of a line at least, of a worker's name at most, and of a bar at least. By eye.
MIN_WIDTH, MAX_NAME_WIDTH, MIN_BAR_WIDTH = 30, 24, 10
#: Rows of workers that a small screen prefers to the line on the whole life. By eye.
FEW_WORKERS = 3
#: Lines around the rows of workers: a blank, the heads, and the note on workers left out.
SPARE_LINES = 3
#: Width of each column next to the worker's name and bar.
_COLUMNS = {"threads": 7, "useful": 6, "largest loss": 22, "running": 8, "tasks": 5}
#: Columns in the order in which a narrow screen drops them.
_DISPENSABLE = ("tasks", "running", "threads", "largest loss")
#: A text and its rich style.
Span = tuple[str, str]
Line = list[Span]


def plain(view: TopView, *, width: int = 80, height: int | None = None) -> str:
    """View as ASCII text, at least 30 characters wide; workers that do not fit in the height are left out."""
    lines = _lines(view, _Ascii(), width, math.inf if height is None else height)
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines[:height])


def coloured(view: TopView, *, width: int, height: int) -> Text:
    """View as rich text, at most ``height`` lines of ``width`` cells."""
    from rich.text import Text

    lines = _lines(view, _Coloured(), width, height)
    text = Text("\n").join(Text.assemble(*line) for line in lines[:height])
    text.no_wrap, text.overflow = True, "crop"
    return text


class _Ascii:
    """Names and buckets in the style of a plain terminal."""

    def clean(self, text: str) -> str:
        return ascii_text(text)

    def width(self, text: str) -> int:
        return len(text)

    def fit(self, text: str, width: int) -> str:
        return shorten(text, width).ljust(width)

    def mark(self, bucket: Bucket) -> Span:
        return f"{LETTERS[bucket]} ", ""

    def bar(self, parts: Sequence[BucketShare], width: int) -> Line:
        return [(bar_letters(parts, width), "")]


class _Coloured:
    """The style of a terminal with colours."""

    def clean(self, text: str) -> str:
        return text

    def width(self, text: str) -> int:
        from rich.cells import cell_len

        return int(cell_len(text))

    def fit(self, text: str, width: int) -> str:
        from rich.cells import cell_len, set_cell_size

        cut = text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
        return str(set_cell_size(cut, width))

    def mark(self, bucket: Bucket) -> Span:
        return "■ ", COLOURS[bucket]

    def bar(self, parts: Sequence[BucketShare], width: int) -> Line:
        return coloured_bar(parts, width)


_Pen = _Ascii | _Coloured


def _lines(view: TopView, pen: _Pen, width: int, height: float) -> list[Line]:
    """All lines; on a small screen the last ones are to be cut off."""
    width = max(width, MIN_WIDTH)

    def wrapped(text: str, style: str = "") -> list[Line]:
        return [[(line, style)] for line in textwrap.wrap(pen.clean(text), width, break_on_hyphens=False)]

    lines = wrapped(_head_line(view), "bold") + wrapped(_headline_line(view))
    still, costs = list[Line](), list[Line]()
    for number, one in enumerate(view.findings, 1):
        if one.kind in STALLED:
            still += wrapped(f"{number}. {one.in_a_line}", "bold")
        else:
            costs += wrapped(f"{number}. {one.lines[0]}")
    lines += still
    parts = _parts(view.last.did)
    if parts:
        lines += [pen.bar(parts, width), *_legend(parts, view.last.nthreads, pen, width)]
    for text in filter(None, _details(view)):
        lines += wrapped(f"{text}.")
    life = wrapped(f"Since {format_seconds(view.life.window_seconds)} ago: {in_a_line(view.life)}.", "dim")
    # On a small screen a few workers are worth more than the past.
    wanted = min(len(view.workers), FEW_WORKERS) + SPARE_LINES
    for more in (costs, life):
        if not parts or height - len(lines) - len(more) >= wanted:
            lines += more
    room = max(height - len(lines) - SPARE_LINES, 0)
    shown = view.last.workers.shown(len(view.workers) if room >= len(view.workers) else int(room))
    return lines + _table(view, shown, pen, width) + wrapped(_left_out_line(view, len(shown)), "dim")


def _legend(parts: Sequence[BucketShare], nthreads: int, pen: _Pen, width: int) -> list[Line]:
    """Number of threads by activity; adds up to the number of threads."""
    tenths = apportion([part.nanoseconds for part in parts], 10 * nthreads)
    items = [
        [pen.mark(part.bucket), (f"{part.bucket} {n / 10:.1f}", "")] for part, n in zip(parts, tenths, strict=True)
    ]
    lengths = [sum(len(text) for text, _ in item) for item in items]
    return [_joined([items[i] for i in line]) for line in packed_lines(lengths, width)]


def _table(view: TopView, shown: Sequence[int], pen: _Pen, width: int) -> list[Line]:
    """One row per worker, below a blank and the heads; empty without workers."""
    if not shown:
        return []
    workers = view.last.workers
    names = [pen.clean(harmless(workers.names[worker])) for worker in shown]
    columns, name_width, bar_width = _layout(max(map(pen.width, names)), width)
    heads = ["worker".ljust(name_width), " " * bar_width, *(_justified(head, head) for head in columns)]
    lines: list[Line] = [[], [("  ".join(heads), "bold")]]
    for worker, name in zip(shown, names, strict=True):
        parts = _parts(workers.did(worker))
        bar = pen.bar(parts, bar_width) if parts else [(" " * bar_width, "")]
        cells = _cells(view, worker)
        lines.append(_joined([[(pen.fit(name, name_width), "")], bar, *([cells[column]] for column in columns)]))
    return lines


def _joined(pieces: Sequence[Line]) -> Line:
    """Pieces separated by gaps."""
    return [span for piece in pieces for span in (("  ", ""), *piece)][1:]


def _parts(did: Breakdown) -> tuple[BucketShare, ...]:
    # In the fixed order of the buckets, so that a bar keeps its order as it changes.
    return parts_of({Bucket(bucket): ns for bucket, ns in did.to_nanoseconds().items()})


def _head_line(view: TopView) -> str:
    workers = format_count(len(view.workers) + view.more_workers, "worker")
    threads, tasks = view.last.nthreads, sum(worker.tasks for worker in view.workers)
    text = (
        f"{harmless(view.source)}  {workers}, {format_count(threads, 'thread')}, {format_count(tasks, 'task')} on them"
    )
    return text if view.time_left is None else f"{text}; {left_text(view.time_left)}"


def _headline_line(view: TopView) -> str:
    last = view.last
    if not last.did:
        return f"No heartbeat came in {format_seconds(last.seconds)}."
    if last.seconds >= view.life.window_seconds:
        return ""  # the sentence on the whole life says it
    return f"Last {format_seconds(last.seconds)}: {in_a_line(last.report)}."


def _details(view: TopView) -> Iterator[str]:
    """A line each on causes of lost time, GPUs, data that moved, memory, events, and tasks with which workers went."""
    last = view.last
    rows = ((bucket, causes_text(row)) for bucket, row in last.cause_shares.items())
    known = "; ".join(f"{bucket}: {row}" for bucket, row in rows if row)
    yield ". ".join(filter(None, (f"Why {known}" if known else "", not_sampled_text(last.not_sampled))))
    shares = ", ".join(f"{name} {format_share(share)}" for name, share in last.gpus.shares_of_all.items())
    yield f"{format_count(len(last.gpus.gpus), 'GPU')}: {shares}" if shares else ""
    yield moved_text(last)
    yield memory_text(last.now.memory)
    tasks = ", ".join(f"{outcome} {n}" for outcome, n in view.tasks.items())
    events = [f"Tasks {tasks}"] if tasks else []
    for what, names in (("Joined", view.joined), ("Left", view.left)):
        if names:
            more = f" and {len(names) - NAMES_IN_A_LINE} more" if len(names) > NAMES_IN_A_LINE else ""
            first = ", ".join(shorten(harmless(name), MAX_NAME_WIDTH) for name in names[:NAMES_IN_A_LINE])
            events.append(f"{what}: {first}{more}")
    yield ". ".join(events)
    yield upper_first("; ".join(killer_text(key, workers) for key, workers in view.killers.items()))


def _left_out_line(view: TopView, shown: int) -> str:
    """Note on the workers that are not shown."""
    if shown == len(view.workers):
        return f"{view.more_workers} more workers, which a live view does not list" * bool(view.more_workers)
    return f"the {shown} least useful of {len(view.workers) + view.more_workers} workers" if shown else ""


def _layout(name_length: int, width: int) -> tuple[list[str], int, int]:
    """Columns that fit, and the widths of the name and of the bar."""
    name = max(min(name_length, MAX_NAME_WIDTH, width // 3), len("worker"))
    columns, dispensable = list(_COLUMNS), list(_DISPENSABLE)
    while (bar := width - name - 2 - sum(2 + _COLUMNS[column] for column in columns)) < MIN_BAR_WIDTH and dispensable:
        columns.remove(dispensable.pop(0))
    return columns, name, bar


def _cells(view: TopView, worker: int) -> dict[str, Span]:
    """Text and style of a worker in each column."""
    workers, state = view.last.workers, view.workers[worker]
    useful, loss, style = float(workers.useful[worker]), "", ""
    if largest := workers.largest_loss(worker):
        loss, style = f"{largest[0]} {format_share(largest[1])}", COLOURS[largest[0]]
    elif not workers.did(worker):
        loss = "no heartbeat"
    elif math.isnan(useful):
        loss = str(Bucket.NO_WORK)
    texts = {
        "threads": str(state.nthreads),
        "useful": format_share(useful),
        "largest loss": loss,
        "running": format_seconds(state.running / 1e9) if state.running else "",
        "tasks": str(state.tasks),
    }
    return {name: (_justified(name, text), style if name == "largest loss" else "") for name, text in texts.items()}


def _justified(column: str, text: str) -> str:
    size = _COLUMNS[column]
    return shorten(text, size).ljust(size) if column == "largest loss" else text.rjust(size)
