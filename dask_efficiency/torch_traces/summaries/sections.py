"""Sections of a summary: in a terminal, on a page, and as plain data."""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import Kind
from dask_efficiency.runs.sections.by_kind import KIND_COLOURS, largest_first, seconds_table
from dask_efficiency.show.columns import Columns, as_records, as_table
from dask_efficiency.show.document import Document, Label, Levels, Section, Slice, Stack, section, with_content
from dask_efficiency.show.figures import (
    apportion,
    format_count,
    format_percent,
    format_seconds,
    format_share,
    name_of,
    sentence,
    time_scale,
    upper_first,
)
from dask_efficiency.show.finding import MAX_SHOWN
from dask_efficiency.torch_traces.path.findings import WORTH_NAMING
from dask_efficiency.torch_traces.summaries.launches import BINS
from dask_efficiency.torch_traces.summaries.merged import RankSummaries
from dask_efficiency.torch_traces.summaries.summary import TorchSummary
from dask_efficiency.torch_traces.summaries.tables import PARTS, TABLES

#: By part of a rank's time: its name, the kind of a path with its colour, and its meaning on a GPU and on threads.
MEANINGS: Mapping[str, tuple[str, Kind, str, str]] = {
    "compute": ("compute", Kind.GPU_COMPUTE, "kernels run, and nothing is exchanged", "operators run on threads"),
    "hidden": (
        *("communication, hidden", Kind.KERNEL_GAP),
        *("ranks exchange data while kernels compute", "ranks exchange data while operators run"),
    ),
    "exposed": (
        *("communication, exposed", Kind.GPU_COMMUNICATION),
        *("ranks exchange data or wait for one another, and no kernel computes", "and no operator runs"),
    ),
    "copies": ("copies", Kind.GPU_SYNC, "memory is copied or filled, and nothing else", ""),
    "idle": ("idle", Kind.UNATTRIBUTED, "the GPU has nothing to do", "no operator runs: Python, or nothing recorded"),
}

#: By reason of idle time, its name and its meaning.
REASONS: Mapping[str, tuple[str, str]] = {
    "host": ("host", "nothing was asked of the GPU: the program runs operators or Python, or waits"),
    "data": ("data loading", "nothing was asked of the GPU: the program takes its next batch"),
    "set_up": ("set-up", "a first call sets the GPU or a library up"),
    "memory": ("memory", "nothing was asked of the GPU: a call takes memory or gives it back"),
    "ranks": ("other ranks", "nothing was asked of the GPU: the program is in a collective of CPUs"),
    "launch": ("launch", "work was asked for, and is on its way to the idle GPU"),
    "gap": ("gaps between kernels", "from one kernel to the next, which was asked for already"),
    "stream": ("another stream", "work waits for a stream of which nothing was asked yet"),
    "edge": ("before and after all work", "before the first work in the trace and after the last"),
    "unknown": ("unknown", "nothing recorded explains it"),
}


class Rows(NamedTuple):
    """Section of the first rows of a table."""

    title: str
    #: Heads of the columns that are shown where anything in them is known.
    heads: Mapping[str, str]
    #: Noun for a row.
    row: str
    bar: str = ""
    #: Column by which rows are in order, the largest first; by default they are as in the table.
    by: str = ""


#: By name of a table, its section.
TABLE_SECTIONS: Mapping[str, Rows] = {
    "kernel_kinds": Rows(
        "Kernels by kind", {"kind": "kind", "count": "kernels", "total": "time", "share": "share"}, "kind", bar="share"
    ),
    "kernels": Rows(
        "Kernels",
        {"name": "kernel", "count": "runs", "total": "time", "share": "share", "median": "median", "high": "95 %"}
        | {"operator": "launched by", "line": "line"},
        "kernel",
    ),
    "operators": Rows(
        "Operators",
        {"name": "operator", "count": "calls", "own": "own", "total": "total"}
        | {"kernels": "kernels", "kernel_time": "their time"},
        "operator",
    ),
    "sequences": Rows(
        "Kernels launched one after another",
        {
            "operator": "operator",
            "kernels": "kernels",
            "count": "calls",
            "total": "their time",
            "operator_time": "its time",
        }
        | {"sequence": "sequence"},
        "sequence",
    ),
    "copies": Rows(
        "Copies",
        {"direction": "direction", "count": "copies", "total": "time", "longest": "longest"}
        | {"bytes": "bytes", "bytes_per_second": "speed"},
        "direction",
    ),
    "collectives": Rows(
        "Collectives",
        {"type": "type", "bytes": "size", "group": "group", "ranks": "ranks", "calls": "calls", "total": "time"}
        | {"skew": "skew, mean", "worst_skew": "worst", "last": "last: rank"}
        | {"algorithm_bandwidth": "algorithm bandwidth", "bus_bandwidth": "bus bandwidth"},
        "type and size",
    ),
    "memory": Rows(
        "Memory",
        {"rank": "rank", "device": "device", "peak_allocated": "allocated, most", "peak_reserved": "reserved, most"}
        | {"peak_after": "when", "allocations": "allocations", "bytes": "bytes of these"},
        "device",
    ),
    "launches": Rows(
        "Launches",
        {"rank": "rank", "device": "GPU", "stream": "stream", "works": "works"}
        | {"delay_median": "delay, median", "delay_p95": "95 %", "call_median": "call, median"}
        | {"shorter": "shorter than their call", "queue_mean": "queue, mean", "queue_max": "most"},
        "stream",
        by="works",
    ),
}

#: By table and column: words for what a trace lacks in which nothing of it is known. Of a table without rows, the first
#: one counts.
LACKED: Mapping[str, Mapping[str, str]] = {
    "kernels": {"name": "kernels", "operator": "what launched kernels", "line": "lines of Python (with_stack)"},
    "operators": {"name": "operators"},
    "launches": {"works": "launches"},
    "copies": {"direction": "copies", "bytes": "bytes of copies"},
    "collectives": {"type": "collectives", "bytes": "sizes of collectives", "skew": "other ranks of collectives"},
    "steps": {"number": "steps (ProfilerStep)"},
    "memory": {"device": "memory over time (profile_memory)"},
}


def to_dict(summary: TorchSummary) -> dict[str, Any]:
    """Figures of a summary, ready for JSON: seconds, bytes, and shares in [0, 1]."""
    return {
        "headline": headline(summary),
        "findings": [finding.to_dict() for finding in summary.findings],
        "files": [rank.job.path for rank in summary.ranks],
        "seconds": summary.seconds,
        "tables": {name: as_records(table(summary.ranks)) for name, table in TABLES.items()},
        "notes": [*_notes(summary)],
    }


def headline(summary: TorchSummary) -> str:
    """Line with the length and the largest part of all ranks' time."""
    parts = largest_first(_sums(summary))
    whole, name = sum(parts.values()), next(iter(parts))
    on_gpu = any(rank.on_gpu for rank in summary.ranks)
    words_of = {
        "compute": "compute" if on_gpu else "operators",
        "idle": "an idle GPU" if on_gpu else "outside of operators",
    }
    largest = words_of.get(name, MEANINGS[name][0].replace(",", " that is"))
    line = f"{format_seconds(summary.seconds)}; {format_share(parts[name] / whole)} of the time is {largest}"
    edge = sum(rank.idle["edge"] for rank in summary.ranks) / 1e9
    if name != "idle" or edge < WORTH_NAMING * parts[name]:
        return line
    return f"{line}, {format_share(edge / parts[name])} of it before or after all work"


def document(summary: TorchSummary) -> Document:
    """Document for a terminal."""
    first = tuple(finding.lines for finding in summary.findings[:MAX_SHOWN])
    return Document(_title(summary), _context(summary), headline(summary), sections(summary), findings=first)


def page(summary: TorchSummary) -> Document:
    """Document for a page of its own, with the data."""
    what = summary.ranks.what
    stats = [(f"longest {what}", format_seconds(summary.seconds)), (f"{what}s", str(len(summary.ranks)))]
    whole = sum(_sums(summary).values())
    stats += [(MEANINGS[name][0], format_share(value / whole)) for name, value in _sums(summary).items() if value]
    return replace(document(summary), stats=tuple(stats), data=to_dict(summary))


def sections(summary: TorchSummary) -> tuple[Section, ...]:
    """Sections with content, in reading order."""
    return with_content(*(make(summary) for make in SECTIONS))


def _title(summary: TorchSummary) -> str:
    files = [posixpath.basename(rank.job.path) or rank.job.path for rank in summary.ranks]
    return f"Summary of {name_of(files[0]) if len(files) == 1 else format_count(len(files), summary.ranks.what)}"


def _context(summary: TorchSummary) -> str:
    parts = [format_count(sum(rank.events for rank in summary.ranks), "event")]
    if len(summary.ranks) == 1 and summary.numbers[0]:
        parts.append(f"{summary.ranks.what} {summary.numbers[0]}")
    return f"{', '.join(parts)}; {format_seconds(summary.seconds)} from first to last"


def _sums(summary: TorchSummary) -> dict[str, float]:
    """Seconds by part, over all ranks."""
    return {name: sum(int(getattr(rank.breakdown, name)[0]) for rank in summary.ranks) / 1e9 for name in PARTS}


def parts(summary: TorchSummary) -> Section:
    """Time of all ranks by part."""
    found = {name: value for name, value in largest_first(_sums(summary)).items() if value}
    on_gpu = any(rank.on_gpu for rank in summary.ranks)
    labels = {name: _part_label(name, on_gpu=on_gpu) for name in found}
    table = replace(seconds_table("part", found, labels), hint_head="what it is")
    return section("Where the time went", table)


def _part_label(name: str, *, on_gpu: bool) -> Label:
    text, kind, of_gpu, of_cpu = MEANINGS[name]
    return Label(text, KIND_COLOURS[kind], of_gpu if on_gpu else of_cpu)


def by_rank(summary: TorchSummary) -> Section:
    """Time of each rank by part, with the ranks that differ first."""
    if len(summary.ranks) < 2:
        return Section("")
    columns, what = TABLES["ranks"](summary.ranks), summary.ranks.what
    totals = np.array([rank.seconds for rank in summary.ranks])
    median = np.median([int(rank.breakdown.compute[0]) for rank in summary.ranks])
    order = np.argsort([-abs(int(rank.breakdown.compute[0]) - median) for rank in summary.ranks], kind="stable")
    shown = sorted(order[: summary.top].tolist())
    heads = {"rank": what, **_part_heads(columns), "total": "total"}
    heads |= {"overlap": "overlap"} if any(columns["overlap"].values) else {}
    stacks = tuple(_stack(summary, row, float(totals.max())) for row in shown)
    more = f"{len(totals) - len(shown)} more {what}s are closer to the median." if len(shown) < len(totals) else ""
    timed = in_one_unit(chosen(columns, shown), (*PARTS, "total"))
    return section(f"By {what}", as_table(timed, heads, drawings=stacks), more)


def _part_heads(columns: Columns) -> dict[str, str]:
    """Heads of the parts that any row has."""
    return {name: name for name in PARTS if any(columns[name].values)}


def _stack(summary: TorchSummary, row: int, longest: float) -> Stack:
    found, on_gpu = summary.ranks[row].breakdown, summary.ranks[row].on_gpu
    sizes = [int(getattr(found, name)[0]) for name in PARTS]
    tenths = apportion(sizes, 1000)
    slices = (
        Slice(_part_label(name, on_gpu=on_gpu), size, format_percent(share))
        for name, size, share in zip(PARTS, sizes, tenths, strict=True)
        if size
    )
    return Stack(tuple(slices), round(longest * 1e9))


def idle(summary: TorchSummary) -> Section:
    """Idle time of GPUs by reason."""
    ranks = [rank for rank in summary.ranks if rank.on_gpu]
    found = {name: sum(rank.idle[name] for rank in ranks) / 1e9 for name in REASONS}
    found = {name: value for name, value in largest_first(found).items() if value}
    labels = {name: Label(REASONS[name][0], hint=REASONS[name][1]) for name in found}
    table = replace(seconds_table("waiting for", found, labels), hint_head="what it is")
    return section("What idle GPUs waited for", table)


def queues(summary: TorchSummary) -> Section:
    """Works that the rank with most of them had asked for and not begun, through its time."""
    rank = max(summary.ranks, key=lambda each: max(each.queue))
    most = max(rank.queue)
    if not most:
        return Section("")
    length = int(rank.breakdown.length[0])
    width = -(-length // BINS)
    amounts = tuple(round(100 * mean) for mean in rank.queue)[: -(-length // width)]
    text = "works asked for and not begun" + (f", {summary.ranks.what} {rank.rank}" if len(summary.ranks) > 1 else "")
    area, highest = Label(text, KIND_COLOURS[Kind.KERNEL_LAUNCH]), f"{most:.3g}"
    drawn = Levels(width, length, ((area, amounts),), (), 100 * most, highest, f"{upper_first(text)}: up to {highest}")
    return section(f"Queues of all streams: {text}", drawn)


def steps(summary: TorchSummary) -> Section:
    """Steps that differ from the median of their rank, or the first ones."""
    columns = TABLES["steps"](summary.ranks)
    differs = np.array(columns["differs"].values, np.bool_)
    lengths = np.array(columns["total"].values)
    shown = np.flatnonzero(differs)[: summary.top].tolist() or [*range(min(len(differs), summary.top))]
    if len(lengths) <= len(summary.ranks):
        return Section("")
    text = (
        f"{format_count(len(differs), 'step')}, {format_seconds(float(np.median(lengths)))} in the median; "
        f"{int(differs.sum()) or 'none'} far from that of their rank."
    )
    heads = {"rank": summary.ranks.what, "number": "step", **_part_heads(columns), "total": "total"}
    return section("Steps", text, as_table(in_one_unit(chosen(columns, shown), (*PARTS, "total")), heads))


def chosen(columns: Columns, rows: Sequence[int]) -> Columns:
    """Some rows of a table."""
    return {name: replace(column, values=[[*column.values][row] for row in rows]) for name, column in columns.items()}


def in_one_unit(columns: Columns, names: Sequence[str]) -> Columns:
    """Columns of which some, of seconds, are in the unit that fits their largest value."""
    known = (value for name in names for value in columns[name].values if value is not None)
    scale = time_scale(max(known, default=0.0))
    return {
        name: replace(column, text=scale.figure, unit=scale.unit) if name in names else column
        for name, column in columns.items()
    }


def rest_of(number: int, shown: Sequence[int], what: str) -> str:
    """Sentence on the rows that are not shown; empty where all are."""
    return f"And {format_count(number - len(shown), f'more {what}')}." if number > len(shown) else ""


def notes(summary: TorchSummary) -> Section:
    """Notes on data that are missing, were changed or left out."""
    return section("Notes", *_notes(summary), caveat=True)


def _notes(summary: TorchSummary) -> Iterator[str]:
    ranks = summary.ranks
    if lacked := [*_lacked(ranks)]:
        yield f"Not in this trace: {', '.join(lacked)}."
    if not any(rank.on_gpu for rank in ranks):
        yield "Time is that of the CPU's threads, and idle is where no operator runs."
    several = sum(rank.gpus > 1 for rank in ranks)
    if several:
        yield (
            f"{format_count(several, ranks.what)} used several GPUs, which are taken together: idle is where none of "
            "them worked."
        )
    lost, asked = sum(rank.lost for rank in ranks), sum(rank.asked for rank in ranks)
    if lost:
        yield f"{lost} of {asked} launches have no work in the trace: what the GPU did after them is not known."
    for rank in ranks:
        for note in rank.notes:
            yield sentence(f"{upper_first(ranks.what)} {rank.rank}: {note}" if len(ranks) > 1 else note)
    if left_out := sum((Counter(rank.left_out) for rank in ranks), Counter[str]()):
        yield f"Left out of the file: {'; '.join(f'{name_of(why)}: {count}' for why, count in left_out.items())}."


def _lacked(ranks: RankSummaries) -> Iterator[str]:
    """Words for what the profiler was not asked for, or the program did not do."""
    for name, words in LACKED.items():
        known = [_is_known(ranks, name, column) for column in words]
        missing = [what for what, there in zip(words.values(), known, strict=True) if not there]
        yield from missing if known[0] else missing[:1]


def _is_known(ranks: RankSummaries, table: str, column: str) -> bool:
    """True if a table has anything in a column; of kernels any place counts, not only that of most of their time."""
    if table == "kernels":
        return bool((getattr(ranks.work.kernels, column) != MISSING).any())
    return any(value is not None for value in TABLES[table](ranks)[column].values)


def first_rows(name: str, summary: TorchSummary) -> Section:
    """First rows of a table; empty without any, and without columns in which nothing is known."""
    wanted, columns = TABLE_SECTIONS[name], TABLES[name](summary.ranks)
    number = len([*columns[next(iter(wanted.heads))].values])
    order = np.argsort(-np.array(columns[wanted.by].values), kind="stable") if wanted.by else np.arange(number)
    rows = order[: summary.top].tolist()
    shown = chosen(columns, rows)
    heads = {key: head for key, head in wanted.heads.items() if any(value is not None for value in shown[key].values)}
    if "rank" in heads:
        heads["rank"] = summary.ranks.what
    return section(
        wanted.title, as_table(shown, heads, bar=wanted.bar if heads else ""), rest_of(number, rows, wanted.row)
    )


#: Sections in reading order.
SECTIONS: tuple[Callable[[TorchSummary], Section], ...] = (
    parts,
    by_rank,
    idle,
    *(partial(first_rows, name) for name in TABLE_SECTIONS),
    queues,
    steps,
    notes,
)
