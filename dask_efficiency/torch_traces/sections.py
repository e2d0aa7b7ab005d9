"""Sections of a torch trace's critical path: in a terminal, on a page, and as plain data."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import Kind
from dask_efficiency.runs.sections.by_kind import (
    TOP_NAMES,
    TORCH_CPU_MEANINGS,
    TORCH_MEANINGS,
    along,
    kind_label,
    kind_labels,
    largest_first,
    seconds_table,
    top,
)
from dask_efficiency.show.columns import TypedColumn, as_records, as_table, seconds, words
from dask_efficiency.show.document import Cell, Document, Section, Share, Table, section, with_content
from dask_efficiency.show.figures import (
    FEW_ROWS,
    Scale,
    format_count,
    format_seconds,
    format_share,
    kernel_name,
    name_of,
    sentence,
    time_scale,
)
from dask_efficiency.show.finding import MAX_SHOWN
from dask_efficiency.torch_traces.path.lateness import LatenessCause
from dask_efficiency.torch_traces.path.path import TorchCriticalPath
from dask_efficiency.torch_traces.path.ranks import JobRanks, StepStragglers
from dask_efficiency.torch_traces.path.speeds import WITHOUT
from dask_efficiency.torch_traces.path.stretches import GROUPS, NOBODY, in_figures

#: Share of the window below which there is no row and no sentence (a thousandth: not visible in two digits).
HARDLY = 0.001

#: Names of a thread's time in no event, and of unexplained time.
BETWEEN = "(between operators: Python, or nothing recorded)"
UNKNOWN = "(unattributed)"
_KERNEL = re.compile(r"^void |<|^nccl")

#: Rows of tables of ranks and of steps: what fits on a screen.
MAX_RANKS, MAX_STEPS = 16, 12

#: Nodes of graphs above which a page lacks what would help: working that out takes some seconds.
MAX_NODES = 200_000

#: Kinds of time of which a page says what they cost only if the trace shows when the GPU was idle.
OF_IDLE_GPUS = ("kernel-launch", "kernel-gap", "gpu-sync")

#: Factor by which a page tries to speed names up (a guess: an example).
TRIED_FACTOR = 2.0


def to_dict(path: TorchCriticalPath) -> dict[str, Any]:
    """Figures of a path, ready for JSON: seconds, and shares in [0, 1]."""
    question, job = path.question, path.job
    names = ("rank", "collectives", "last", "suffered_seconds", "caused_seconds")
    waits = zip(*(getattr(job.waits, name).tolist() for name in names), strict=True)
    return {
        "headline": path.headline,
        "findings": [finding.to_dict() for finding in path.findings],
        "files": [rank.path for rank in path.trace.ranks],
        "annotation": question.annotation,
        "instance": question.instance,
        "ranks": [graph.trace.rank for graph in path.graphs],
        "rank": path.rank,
        "window_seconds": path.window_seconds,
        "longest_path_seconds": path.longest_path_seconds,
        "summary": path.shares,
        **{f"seconds_by_{by}": path.seconds(by) for by in GROUPS},
        "inferred_seconds": path.inferred_seconds,
        "inferred_edges": path.inferred_edges,
        "data_floor_seconds": None if path.graph.trace.execution is None else path.data_flow().floor_seconds,
        "changes": list(path.changes),
        "notes": [*_notes(path)],
        "stragglers": as_records(_stragglers(job, job.stragglers)),
        "waits": [dict(zip(names, row, strict=True)) for row in waits],
    }


def title(path: TorchCriticalPath) -> str:
    """Title with the annotation, and the file or number of ranks."""
    files = [posixpath.basename(rank.path) or rank.path for rank in path.trace.ranks]
    of_which = name_of(files[0]) if len(files) == 1 else format_count(len(path.graphs), "rank")
    annotation = path.question.annotation
    return f"Critical path of {name_of(annotation) + ', ' if annotation else ''}{of_which}"


def context(path: TorchCriticalPath) -> str:
    """Size of the path: events, ranks and window."""
    parts = [format_count(sum(len(graph.region.rows) for graph in path.graphs), "event")]
    if len(path.graphs) > 1:
        parts.append(f"{format_count(len(path.graphs), 'rank')}, of which rank {path.rank} ended last")
    elif len(path.trace.ranks) > 1 or path.rank:
        parts.append(f"rank {path.rank}")
    if (instance := path.question.instance) is not None:
        numbers = f"{instance[0]} to {instance[1]}" if isinstance(instance, tuple) else str(instance)
        parts.append(f"instance {numbers}")
    return f"{', '.join(parts)}; window: {in_figures(path.window_seconds)}"


def document(path: TorchCriticalPath) -> Document:
    """Document for a terminal."""
    first = tuple(finding.lines for finding in path.findings[:MAX_SHOWN])
    return Document(title(path), context(path), path.headline, sections(path), findings=first)


def page(path: TorchCriticalPath) -> Document:
    """Document for a page of its own, with figures; for a small graph, also what would help."""
    stats = [("window", in_figures(path.window_seconds)), ("longest path", in_figures(path.longest_path_seconds))]
    if waited := int(path.job.waits.suffered.sum()) / 1e9:
        stats.append(("ranks waited for one another", in_figures(waited)))
    shown = document(path)
    more = with_content(*shown.sections, improvements(path))
    return replace(shown, sections=more, stats=tuple(stats), data=to_dict(path))


def what_if_document(before: TorchCriticalPath, after: TorchCriticalPath) -> Document:
    """Document about the effect of changes."""
    then = (f"Then: {after.headline}.",)
    return Document(title(before), context(before), before.headline, what_if(before, after), last=then)


def sections(path: TorchCriticalPath) -> tuple[Section, ...]:
    """Sections with content, in reading order."""
    changed = section("Not as it was recorded", *(f"{sentence(change)}." for change in path.changes), caveat=True)
    of_path = (changed, kinds(path), by_name(path), by_rank(path), longest(path), by_data(path), stalled(path))
    return with_content(*of_path, waits(path), steps(path), notes(path))


def _timed(heads: Iterable[str], rows: Iterable[Iterable[Cell | float]], largest: float, **drawn: Any) -> Table:
    """Table of texts and seconds, in the unit that fits the largest; it takes the place of the braces in ``heads``."""
    scale = time_scale(largest)
    cells = tuple(tuple(scale.figure(cell) if isinstance(cell, float) else cell for cell in row) for row in rows)
    return Table(tuple(head.format(scale.unit) for head in heads), cells, **drawn)


def kinds(path: TorchCriticalPath) -> Section:
    """The window along time, and by kind, largest first."""
    seconds, stretches = path.seconds("kind"), path.stretches
    meanings = TORCH_MEANINGS if path.has_gpu else TORCH_CPU_MEANINGS
    worth = sum(value >= HARDLY * path.window_seconds for value in seconds.values())
    shown = top(seconds, max(worth, 1))
    labels = {name: kind_label(name, meanings) for name in shown}
    drawn = []
    if len(stretches):
        window = int(stretches.start[0]), int(stretches.stop[-1])
        drawn = [along(stretches.kind, stretches.start, stretches.stop, window, kind_labels(meanings))]
    table = replace(seconds_table("kind", shown, labels), hint_head="what it is")
    return section("What the window was spent on", *drawn, table)


def by_name(path: TorchCriticalPath) -> Section:
    """The window by name of kernel, operator or call."""
    seconds = path.seconds("name")
    if set(seconds) <= {NOBODY}:
        return Section("")
    if unknown := path.seconds_of([Kind.UNATTRIBUTED]).get(NOBODY, 0.0):
        seconds |= {NOBODY: seconds[NOBODY] - unknown, UNKNOWN: unknown}
        seconds = largest_first({name: value for name, value in seconds.items() if value > 0})
    # equal short names are added up
    readable: Counter[str] = Counter()
    for name, value in top(seconds, TOP_NAMES).items():
        readable[BETWEEN if name == NOBODY else shown_name(name)] += value  # type: ignore[assignment]  # seconds
    return section("By kernel and operator", seconds_table("name", readable, {}))


def shown_name(name: str) -> str:
    """Kernel's name without types and namespaces; other names are unchanged."""
    return name_of(kernel_name(name) if _KERNEL.search(name) else name)


def by_rank(path: TorchCriticalPath) -> Section:
    """The window by the rank that the path was on."""
    if len(path.graphs) < 2:
        return Section("")
    # time before the first rank of the path began does not count for that rank
    unknown = path.seconds_of([Kind.UNATTRIBUTED], "rank")
    known = {name: value - unknown.get(name, 0.0) for name, value in path.seconds("rank").items()}
    seconds = {f"rank {name}" if name != NOBODY else name: value for name, value in known.items()}
    seconds[UNKNOWN] = sum(unknown.values())
    seconds = largest_first({name: value for name, value in seconds.items() if round(1e9 * value)})
    return section("By rank that the path went through", seconds_table("rank", top(seconds, MAX_RANKS), {}))


def longest(path: TorchCriticalPath) -> Section:
    """The longest path and its bounds."""
    length, window = path.longest_path_seconds, (path.graph.region.stop - path.graph.region.start) / 1e9
    of_rank, its = "", "the window"
    if len(path.graphs) > 1:
        of_rank, its = f" of rank {path.rank}", f"its {in_figures(window)}"
    text = (
        f"The longest path{of_rank} through what its events had to wait for, as HTA defines it, takes "
        f"{in_figures(length)}, {format_share(length / window) if window else '0 %'} of {its}."
    )
    shares = {name: share * length for name, share in largest_first(path.shares).items() if share}
    table = seconds_table("bound by", shares, {})
    return section("Longest path", text, table)


def by_data(path: TorchCriticalPath) -> Section:
    """With an execution trace, the floor that data alone set, and the operators that could begin earlier."""
    if path.graph.trace.execution is None or not len((flow := path.data_flow()).operators):
        return Section("")
    earlier = np.nan_to_num(flow.earlier_seconds)
    most = np.argsort(-earlier, kind="stable")[:TOP_NAMES]
    text = (
        f"The longest chain of operators that need one another's data takes {format_seconds(flow.floor_seconds)}: no "
        "other order of the same operators ends sooner."
    )
    rows = (
        (shown_name(flow.execution.names[flow.operators.name[row]]), float(earlier[row]))
        for row in most.tolist()
        if earlier[row] >= HARDLY * path.window_seconds
    )
    table = _timed(("operators that could begin earlier", "by, {}"), rows, float(earlier.max(initial=0.0)))
    return section("What data alone need", text, table)


def stalled(path: TorchCriticalPath) -> Section:
    """Time in calls that manage memory, and in events that load data."""
    least = HARDLY * path.window_seconds
    worth = [(name, row) for name, row in path.stalls().items() if row.total_seconds >= least][:TOP_NAMES]
    rows = ((name_of(name), str(row.times), row.total_seconds, row.path_seconds) for name, row in worth)
    heads = ("memory and data", "times", "in all threads, {}", "on the path, {}")
    largest = max((row.total_seconds for _, row in worth), default=0.0)
    return section("Stalls for memory and data", _timed(heads, rows, largest))


def waits(path: TorchCriticalPath) -> Section:
    """Waits between ranks."""
    totals = path.job.waits
    if not totals.suffered.any():
        return Section("")
    order = np.argsort(-totals.caused, kind="stable")[:MAX_RANKS]
    caused, suffered = totals.caused_seconds, totals.suffered_seconds
    rows = (
        (f"rank {totals.rank[row]}", caused[row], suffered[row], f"{totals.last[row]} of {totals.collectives[row]}")
        for row in order.tolist()
    )
    largest = float(caused.max())
    heads = ("rank", "made wait, {}", "waited, {}", "came last")
    text = (
        f"In {format_count(len(path.job.collectives), 'collective')} the ranks waited "
        f"{in_figures(int(totals.suffered.sum()) / 1e9)} for one another, in sum."
    )
    more = f"{len(totals) - len(order)} more ranks made the others wait less." if len(order) < len(totals) else ""
    bars = tuple(Share(float(totals.caused[row]) / float(totals.caused.max())) for row in order.tolist())
    table = _timed(heads, rows, max(largest, float(suffered.max())), drawings=bars)
    return section("Who waited for whom", text, table, more)


def steps(path: TorchCriticalPath) -> Section:
    """The straggler of each step and its cause."""
    stragglers = path.job.stragglers
    rows = np.flatnonzero(stragglers.caused > 0)
    if not len(rows):
        return Section("")
    shown, scale = stragglers.take(rows[:MAX_STEPS]), time_scale(float(stragglers.caused.max()) / 1e9)
    behind = seconds(shown.behind / 1e9, scale)
    heads = {"step": "step", "rank": "straggler", "cause": "because of"}
    heads |= {"caused_seconds": "made wait", "behind": "behind the median"}
    more = f"And {format_count(len(rows) - MAX_STEPS, 'more step')}." if len(rows) > MAX_STEPS else ""
    table = as_table(_stragglers(path.job, shown, scale) | {"behind": behind}, heads)
    return section("The straggler of each step", table, more)


def _stragglers(job: JobRanks, stragglers: StepStragglers, scale: Scale | None = None) -> dict[str, TypedColumn]:
    steps = (None if step == MISSING else step for step in stragglers.step.tolist())
    return {
        "step": words(steps, text="step {}".format, unknown="(outside of steps)"),
        "rank": words((job.numbers[position] for position in stragglers.rank.tolist()), text="rank {}".format),
        "cause": words(LatenessCause(cause).label for cause in stragglers.cause.tolist()),
        "caused_seconds": seconds(stragglers.caused / 1e9, scale),
    }


def notes(path: TorchCriticalPath) -> Section:
    """Inferences, exactness of clocks, and missing data."""
    return section("Notes", *_notes(path), caveat=True)


def _notes(path: TorchCriticalPath) -> Iterator[str]:
    if path.inferred_edges:
        share = path.inferred_seconds / path.window_seconds if path.window_seconds else 0.0
        yield (
            f"The trace does not record what calls of the CPU waited for. {format_count(path.inferred_edges, 'wait')} "
            f"{'was' if path.inferred_edges == 1 else 'were'} inferred from which calls block; the path comes to "
            f"{format_share(share)} of the window by these. The profiler records them with "
            "enable_cuda_sync_events=True."
        )
    clocks = path.job.clocks
    apart = int(np.abs(clocks.offset).max(initial=0))
    if apart:
        yield f"Clocks of ranks were up to {format_seconds(apart / 1e9)} apart; ends of collectives align them."
    if int(clocks.violations.sum()):
        yield (
            f"In {format_count(int(clocks.violations.sum()), 'case')} a rank left a collective before the last one had "
            "come, by these clocks: instants between ranks are no more exact than that."
        )
    ungrouped = sum(path.job.collectives.left_out.values())
    if ungrouped and len(path.trace.ranks) > 1:
        why = "; ".join(f"{count} as {sentence(reason)}" for reason, count in path.job.collectives.left_out.items())
        yield f"{format_count(ungrouped, 'kernel')} of communication could not be matched over ranks: {why}."
    if path.grounds.lost:
        yield (
            f"{path.grounds.lost} of {path.grounds.launches} launches have no work in the trace: where the program may "
            "have waited for that, its time is unattributed."
        )
    for rank in path.trace.ranks:
        for note in rank.notes:
            yield f"Rank {rank.rank}: {note}" if len(path.trace.ranks) > 1 else note
    if lost := sum((Counter(rank.left_out) for rank in path.trace.ranks), Counter[str]()):
        yield f"Left out of the file: {'; '.join(f'{name_of(why)}: {count}' for why, count in lost.items())}."


def what_if(before: TorchCriticalPath, after: TorchCriticalPath) -> tuple[Section, ...]:
    """Effect of changes: the window, and its kinds."""
    was, now = before.window_seconds, after.window_seconds
    text = f"{sentence(after.changes[-1])}: {in_figures(now)} instead of {in_figures(was)}"
    change = now / was - 1 if was else 0.0
    than = "shorter" if change < 0 else "longer"
    text += f", {format_share(abs(change))} {than}." if abs(change) > HARDLY else ", no shorter."
    recorded, then = before.seconds("kind"), after.seconds("kind")
    rows = [
        (kind_label(name, TORCH_MEANINGS), recorded.get(name, 0.0), then.get(name, 0.0)) for name in recorded | then
    ]
    rows.append((kind_label("total"), was, now))
    largest = max([*recorded.values(), *then.values()], default=0.0)
    table = _timed(("kind", "recorded, {}", "what if, {}"), rows, largest, sums=(len(rows) - 1,))
    return section("What if", text), section("By kind", table)


def improvements(path: TorchCriticalPath) -> Section:
    """Savings of leaving out each kind of time, and of speeding up the longest names; none for a large graph."""
    if sum(len(graph.nodes) for graph in path.graphs) > MAX_NODES:
        return Section("")
    known = path.grounds.gpu_is_known(path.window_seconds)
    asked = [name for name in WITHOUT if known or name not in OF_IDLE_GPUS]
    savings = {f"no {name}": path.saved_seconds(without=[name]) for name in asked}
    for name in [name for name in path.seconds("name") if name != NOBODY][:FEW_ROWS]:
        shown = f"{shown_name(name)}, {TRIED_FACTOR:g} times as fast"
        savings[shown] = path.saved_seconds(speed_up={f"^{re.escape(name)}$": TRIED_FACTOR})
    worth = {name: saved for name, saved in largest_first(savings).items() if saved >= HARDLY * path.window_seconds > 0}
    if not worth:
        return Section("")
    largest = max(worth.values())
    rows = ((name, saved, f"{100 * saved / path.window_seconds:.1f}") for name, saved in worth.items())
    bars = tuple(Share(saved / largest) for saved in worth.values())
    table = _timed(("what", "saved, {}", "% of the window"), rows, largest, drawings=bars)
    text = "Each by itself, with every wait worked out anew. An estimate: unexplained time stays as long as it was."
    return section("What would help", text, table)
