"""Sections on kernels, operators, copies, collectives and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.show.columns import as_table
from dask_efficiency.show.document import Section, section
from dask_efficiency.show.figures import format_count
from dask_efficiency.torch_traces.summaries.work_tables import WORK_TABLES

if TYPE_CHECKING:
    from dask_efficiency.torch_traces.summaries.summary import TorchSummary


def _section(
    title: str, name: str, heads: Mapping[str, str], summary: TorchSummary, what: str, *, bar: str = ""
) -> Section:
    """First rows of a table; empty without any, and without columns in which nothing is known."""
    columns = WORK_TABLES[name](summary.ranks)
    number = len([*columns["total" if "total" in columns else "rank"].values])
    if not number:
        return Section("")
    shown = {key: replace(column, values=[*column.values][: summary.top]) for key, column in columns.items()}
    known = {key: head for key, head in heads.items() if any(value is not None for value in shown[key].values)}
    rest = f"And {format_count(number - summary.top, f'more {what}')}." if number > summary.top else ""
    return section(title, as_table(shown, known, bar=bar), rest)


def kernel_kinds(summary: TorchSummary) -> Section:
    """Kernels by kind."""
    heads = {"kind": "kind", "count": "kernels", "total": "time", "share": "share"}
    return _section("Kernels by kind", "kernel_kinds", heads, summary, "kind", bar="share")


def kernels(summary: TorchSummary) -> Section:
    """Kernels with most time."""
    heads = {"name": "kernel", "count": "runs", "total": "time", "share": "share", "median": "median", "high": "95 %"}
    heads |= {"operator": "launched by", "line": "line"}
    return _section("Kernels", "kernels", heads, summary, "kernel")


def operators(summary: TorchSummary) -> Section:
    """Operators with most time of their own on threads."""
    heads = {"name": "operator", "count": "calls", "own": "own", "total": "total"}
    heads |= {"kernels": "kernels", "kernel_time": "their time"}
    return _section("Operators", "operators", heads, summary, "operator")


def copies(summary: TorchSummary) -> Section:
    """Copies by direction."""
    heads = {"direction": "direction", "count": "copies", "total": "time", "longest": "longest"}
    heads |= {"bytes": "bytes", "bytes_per_second": "speed"}
    return _section("Copies", "copies", heads, summary, "direction")


def collectives(summary: TorchSummary) -> Section:
    """Collectives by type, size and group."""
    heads = {"type": "type", "bytes": "size", "group": "group", "ranks": "ranks", "calls": "calls", "total": "time"}
    heads |= {"skew": "skew, mean", "worst_skew": "worst", "last": "last: rank"}
    heads |= {"algorithm_bandwidth": "algorithm bandwidth", "bus_bandwidth": "bus bandwidth"}
    return _section("Collectives", "collectives", heads, summary, "type and size")


def memory(summary: TorchSummary) -> Section:
    """Memory by rank and device."""
    heads = {"rank": "rank", "device": "device", "peak_allocated": "allocated, most", "peak_reserved": "reserved, most"}
    heads |= {"peak_after": "when", "allocations": "allocations", "bytes": "bytes of these"}
    return _section("Memory", "memory", heads, summary, "device")


def not_profiled(summary: TorchSummary) -> Iterator[str]:
    """Sentence on what the profiler was not asked for."""
    made = [rank.made for rank in summary.ranks]
    has = {
        "memory over time (profile_memory)": any(len(each["memory"].peaks) for each in made),
        "lines of Python and modules (with_stack)": any(
            (each["work"].kernels.line != MISSING).any() or (each["work"].kernels.module != MISSING).any()
            for each in made
        ),
    }
    if missing := [what for what, there in has.items() if not there]:
        yield f"Not in this trace: {', nor '.join(missing)}."


#: Sections in reading order.
WORK_SECTIONS = (kernel_kinds, kernels, operators, copies, collectives, memory)
