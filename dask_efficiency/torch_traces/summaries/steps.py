"""Steps of the profiler: the breakdown of each, and the ones that differ from the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dask_efficiency.accounts.tables import Bool, Column, Int32, Int64
from dask_efficiency.gpu.intervals import IntervalArrays
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.region import steps_of
from dask_efficiency.torch_traces.summaries.breakdown import Activity, TimeParts, seen_in
from dask_efficiency.torch_traces.summaries.idle import IdleReasons

#: Steps differ if their length is further from the median than so many times the scaled median absolute deviation
#: (Leys et al. 2013), and than this share of the median; fewer steps than so many are not judged.
SPREADS, SHARE, LEAST_STEPS = 3.5, 0.05, 4


@dataclass(frozen=True, slots=True, repr=False)
class StepTimes(TimeParts):
    """A row for each step of a rank, as long as the profiler's range on its thread."""

    number: Int32
    #: Time from its start to its first work in which the GPU waited for the program or its launch.
    idle_at_start: Annotated[Int64, Column(unit="nanoseconds")]


def step_times(trace: RankTrace, activity: Activity, reasons: IdleReasons) -> StepTimes:
    """Break the steps of a rank down; none without a schedule."""
    steps = steps_of(trace)
    windows = IntervalArrays(steps.start, steps.stop)
    before = before_first_work(windows, activity.busy)
    late = seen_in(before, reasons.host) + seen_in(before, reasons.launch)
    return StepTimes.of(activity, windows, number=steps.number, idle_at_start=late)


def before_first_work(steps: IntervalArrays, busy: IntervalArrays) -> IntervalArrays:
    """Time of each step from its start to its first work; steps of several threads may overlap."""
    place = np.searchsorted(busy.stop, steps.start, side="right")
    first = np.append(busy.start, np.iinfo(np.int64).max)[place]
    return IntervalArrays(steps.start, np.clip(first, steps.start, steps.stop))


def outlying(values: Int64) -> Bool:
    """Mask of values far from the median, by the median absolute deviation."""
    if len(values) < LEAST_STEPS:
        return np.zeros(len(values), np.bool_)
    median = np.median(values)
    apart = np.abs(values - median)
    far: Bool = apart > np.maximum(SPREADS * MAD_TO_DEVIATION * np.median(apart), SHARE * median)
    return far
