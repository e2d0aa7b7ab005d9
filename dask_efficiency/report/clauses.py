"""A straggler, a long task or a skewed prefix as a clause of a sentence."""

from __future__ import annotations

from dask_efficiency.report.figures import format_seconds, format_times, name_of
from dask_efficiency.report.wall_clock import WORTH_SAYING
from dask_efficiency.skew import Skew
from dask_efficiency.straggler.finding import Finding
from dask_efficiency.straggler.long_tail import LongTask
from dask_efficiency.straggler.sizes import SIZES_DIFFER
from dask_efficiency.straggler.wording import MEANINGS


def slow_worker(finding: Finding) -> str:
    """Who takes how much longer, and what that means."""
    who = f"worker {name_of(finding.worker)}" if finding.worker else f"all of host {name_of(finding.host)}"
    times = "longer" if finding.effect is None else f"{format_times(finding.effect)[:-1]} times as long"
    lost = finding.seconds_lost
    saved = f", without which the run is {format_seconds(lost)} shorter" if lost else ""
    return f"{who} takes {times} for the same work: {MEANINGS[finding.cause][0]}{saved}"


def long_task(one: LongTask, skew: Skew | None = None) -> str:
    """What a task took that is far longer than the others of its prefix, and its size where that is part of why.

    Where the skew of its prefix is given, and is of this very task, it says for how long nothing else ran, too.
    """
    alone = _alone(skew) if skew is not None and skew.longest_key == one.key else ""
    took = f"task {name_of(one.key)!r} took {format_seconds(one.seconds)}, {one.times_longer:.3g} times the median"
    larger = one.times_larger
    size = f", its input is {larger:.3g} times as large" if larger >= SIZES_DIFFER else ""
    return f"{took} of its prefix{size}{alone}"


def skewed(prefix: str, skew: Skew) -> str:
    """What the longest task of a prefix took, how it differs from the others, and for how long nothing else ran."""
    both = skew.longest_key == skew.largest_key and skew.times_larger >= SIZES_DIFFER
    took = f"took {format_seconds(skew.max_seconds)}, {skew.times_longer:.3g} times the median"
    return f"the {'largest' if both else 'longest'} of {skew.count} {name_of(prefix)} {took}{_alone(skew)}"


def _alone(skew: Skew) -> str:
    if not skew.alone_seconds or skew.alone_seconds < WORTH_SAYING * skew.max_seconds:
        return ""
    return f"; for {format_seconds(skew.alone_seconds)} nothing else ran"
