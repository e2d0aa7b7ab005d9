"""A straggler or a long task as a clause of a sentence."""

from __future__ import annotations

from dask_efficiency.report.figures import format_seconds, format_times, name_of
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


def long_task(one: LongTask) -> str:
    """What a task took that is far longer than the others of its prefix, and its size where that is part of why."""
    took = f"task {name_of(one.key)!r} took {format_seconds(one.seconds)}, {one.times_longer:.3g} times the median"
    larger = one.times_larger
    return f"{took} of its prefix" + (f", its input is {larger:.3g} times as large" if larger >= SIZES_DIFFER else "")
