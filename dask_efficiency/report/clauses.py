"""A long task or a skewed prefix as a clause of a sentence."""

from __future__ import annotations

import math
from collections import Counter

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.lost_time import WORTH_A_ROW
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.wall_clock import WORTH_SAYING
from dask_efficiency.runs.stragglers.long_tail import LongTask
from dask_efficiency.show.figures import format_count, format_seconds, name_of, named, sentence
from dask_efficiency.straggler.sizes import SIZES_DIFFER


def why_not_known(report: EfficiencyReport) -> str:
    """For what reason nobody knows why threads waited, and on which workers; empty where all is known, or is little."""
    waited = {loss.bucket: loss.share for loss in report.losses}.get(Bucket.THREAD_NONCPU, 0.0)
    if waited < WORTH_A_ROW or (report.waiting and not report.not_sampled):
        return ""
    if not report.not_sampled:
        return "why threads waited is not known here: nobody looked"
    (reason, _), *others = Counter(report.not_sampled.values()).most_common()
    workers = [worker for worker, why in report.not_sampled.items() if why == reason]
    whose = "" if len(workers) == len(report.by_worker) else f" of {named(workers)}"
    more = f", and {format_count(len(others), 'more reason')} on other workers" if others else ""
    return f"why threads{whose} waited is not known here: {sentence(reason)}{more}"


def long_task(one: LongTask, skew: Skew | None = None) -> str:
    """What a task took that is far longer than the others of its prefix, and its size where that is part of why.

    Where the skew of its prefix is given, and is of this very task, it says for how long nothing else ran, too.
    """
    alone = _alone(skew) if skew is not None and skew.longest_key == one.key else ""
    took = f"task {name_of(one.key)!r} took {format_seconds(one.seconds)}, {one.times_longer:.3g} times the median"
    larger = one.times_larger
    size = f", its input is {larger:.3g} times as large" if larger >= SIZES_DIFFER else ""
    return f"{took} of its prefix{size}{alone}"


def skewed(prefix: str, skew: Skew, larger: float = math.nan) -> str:
    """What the longest task of a prefix took, how it differs from the others, and for how long nothing else ran.

    ``larger`` is how many times as large as usual its input is, where that is known.
    """
    both = skew.longest_key == skew.largest_key and skew.times_larger >= SIZES_DIFFER
    took = f"took {format_seconds(skew.max_seconds)}, {skew.times_longer:.3g} times the median"
    size = f", its input is {larger:.3g} times as large" if larger >= SIZES_DIFFER and not both else ""
    return f"the {'largest' if both else 'longest'} of {skew.count} {name_of(prefix)} {took}{size}{_alone(skew)}"


def _alone(skew: Skew) -> str:
    if not skew.alone_seconds or skew.alone_seconds < WORTH_SAYING * skew.max_seconds:
        return ""
    return f"; for {format_seconds(skew.alone_seconds)} nothing else ran"
