"""How unlike the tasks of a prefix are, in seconds and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.skew import long_tasks, longest, uneven_sizes, uneven_times
from dask_efficiency.show.document import Section, Table, section
from dask_efficiency.show.extent import MAX_ROWS, SCREEN, Extent
from dask_efficiency.show.figures import format_bytes, format_seconds, format_times, name_of

#: Sentences; the tables have more.
MAX_SENTENCES = 3


def skew(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """The prefixes whose tasks or results differ much; on a page all of them, folded away."""
    sentences = [longest(report, prefix).where for prefix in long_tasks(report)]
    found = section(
        "Skew",
        *sentences[:MAX_SENTENCES],
        _times(uneven_times(report), extent.prefixes),
        _sizes(uneven_sizes(report), extent.prefixes),
    )
    if not extent.drawn or not report.skew:
        return found
    ranked = dict(sorted(report.skew.items(), key=lambda item: -item[1].max_seconds))
    number = len(ranked)
    heading = "Tasks by prefix" if number <= MAX_ROWS else f"Tasks of {MAX_ROWS} of {number} prefixes"
    everything = section(heading, _times(ranked, MAX_ROWS), _sizes(ranked, MAX_ROWS), folded=True)
    return section("Skew", *found.blocks, everything)


def _times(skews: Mapping[str, Skew], at_most: int) -> Table:
    def row(one: Skew) -> tuple[str, ...]:
        seconds = map(format_seconds, (one.median_seconds, one.p95_seconds, one.max_seconds))
        return (*seconds, format_times(one.times_longer), name_of(one.longest_key))

    return _table(skews, at_most, "longest task", row)


def _sizes(skews: Mapping[str, Skew], at_most: int) -> Table:
    def row(one: Skew) -> tuple[str, ...]:
        sizes = map(format_bytes, (one.median_bytes, one.p95_bytes, one.max_bytes))
        return (*sizes, format_times(one.times_larger), name_of(one.largest_key))

    known = {prefix: one for prefix, one in skews.items() if one.largest_key}
    return _table(known, at_most, "largest result", row)


def _table(skews: Mapping[str, Skew], at_most: int, most: str, row: Callable[[Skew], tuple[str, ...]]) -> Table:
    """A row for each of the first prefixes, the median, 95 %, the maximum, that over the median, and whose it is."""
    shown = list(skews.items())[:at_most]
    return Table(
        ("prefix", "tasks", "median", "95 %", "max", "times", most),
        tuple((name_of(prefix) or "(no prefix)", str(one.count), *row(one)) for prefix, one in shown),
        words=(0, 6),
    )
