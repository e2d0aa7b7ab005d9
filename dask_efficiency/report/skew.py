"""Of which prefixes the skew is worth words, the worst first, and what their longest task costs."""

from __future__ import annotations

import math

from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.worker.balance import OTHER
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.runs.stragglers.long_tail import SHARE_OF_RUN, TIMES_LONGER
from dask_efficiency.show.figures import name_of
from dask_efficiency.show.finding import Finding
from dask_efficiency.straggler.observations import SIZES_DIFFER
from dask_efficiency.straggler.wording import long_task

#: Of fewer tasks, a median says little.
MIN_TASKS = 8

#: Tasks differ where the most is this many times the median.
MIN_TIMES = 2.0

#: The longest is worth a row of a table where it took longer than the median by this share of the work on the cluster.
MIN_SHARE = 0.01

#: Results smaller than this weigh on nobody, however they differ.
MIN_BYTES = 2**20


def uneven_times(report: EfficiencyReport) -> dict[str, Skew]:
    """The prefixes whose longest task took so much longer than the median that it matters."""
    least = MIN_SHARE * report.cluster_seconds
    excess = {prefix: one.max_seconds - one.median_seconds for prefix, one in report.skew.items()}
    ranked = sorted(_comparable(report), key=lambda prefix: -excess[prefix])
    return {
        prefix: report.skew[prefix]
        for prefix in ranked
        if report.skew[prefix].times_longer >= MIN_TIMES and excess[prefix] > 0 and excess[prefix] >= least
    }


def uneven_sizes(report: EfficiencyReport) -> dict[str, Skew]:
    """The prefixes whose largest result is so much larger than the median that it matters."""
    ranked = sorted(_comparable(report), key=lambda prefix: -report.skew[prefix].max_bytes)
    return {
        prefix: report.skew[prefix]
        for prefix in ranked
        if report.skew[prefix].times_larger >= MIN_TIMES and report.skew[prefix].max_bytes >= MIN_BYTES
    }


def long_tasks(report: EfficiencyReport) -> dict[str, Skew]:
    """The prefixes whose longest task took far longer than the others, and a good part of the run.

    What the long tail of a recorded run says already is none of them.
    """
    said = {one.prefix for one in report.long_tail}
    return {
        prefix: one
        for prefix, one in uneven_times(report).items()
        if prefix not in said
        and one.times_longer > TIMES_LONGER
        and one.max_seconds >= SHARE_OF_RUN * report.cluster_seconds
    }


def held_up(report: EfficiencyReport) -> dict[str, Skew]:
    """Those of :func:`long_tasks` for which all else waited, for a good part of the run."""
    least = SHARE_OF_RUN * report.cluster_seconds
    return {prefix: one for prefix, one in long_tasks(report).items() if one.alone_seconds >= max(least, 1e-9)}


def recorded_tasks(report: EfficiencyReport) -> list[Finding]:
    """What each task of the long tail of a recorded run costs."""
    alone = {one.longest_key: one.alone_seconds for one in report.skew.values()}
    return [one.finding(alone.get(one.key, 0.0)) for one in report.long_tail]


def longest(report: EfficiencyReport, prefix: str) -> Finding:
    """What the longest task of a prefix costs."""
    skew = report.skew[prefix]
    both = skew.longest_key == skew.largest_key and skew.times_larger >= SIZES_DIFFER
    return long_task(
        f"The {'largest' if both else 'longest'} of {skew.count} {name_of(prefix)}",
        skew.max_seconds,
        skew.times_longer,
        times_larger=math.nan if both else input_of(report, skew),
        alone_seconds=skew.alone_seconds,
    )


def larger_input(report: EfficiencyReport, waited_for: str = "") -> float:
    """How many times as large as usual the input of the task is that took far longer than the others of its prefix.

    NaN where no task took so long, its input is not known, or all waited for tasks of another prefix, if for any.
    """
    for recorded in report.long_tail[:1]:
        known = recorded.median_bytes > 0 and waited_for in ("", recorded.prefix)
        return recorded.times_larger if known else math.nan
    for prefix, longest in list(held_up(report).items())[:1]:
        return input_of(report, longest) if waited_for in ("", prefix) else math.nan
    return math.nan


def input_of(report: EfficiencyReport, skew: Skew) -> float:
    """How many times as large as usual what the longest task of a prefix worked on is, without a trace.

    It is the largest result of its prefix, if both are of the same partition: so what follows the name in their keys
    says. NaN where there is none that is far larger than those of its prefix.
    """
    _, tells, partition = skew.longest_key.partition(",")
    found = (
        one.times_larger
        for one in uneven_sizes(report).values()
        if one.largest_key == skew.longest_key or (tells and one.largest_key.endswith(tells + partition))
    )
    return max(found, default=math.nan)


def _comparable(report: EfficiencyReport) -> list[str]:
    """The prefixes of enough tasks; those that were put together are not alike."""
    return [prefix for prefix, one in report.skew.items() if one.count >= MIN_TASKS and prefix != OTHER]
