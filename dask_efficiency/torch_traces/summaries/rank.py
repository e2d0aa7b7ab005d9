"""RankSummary: what is kept of one rank's trace: small tables, and no event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_efficiency.gpu.intervals import IntervalArrays
from dask_efficiency.torch_traces.kineto.load import JobRank
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.known import Launches
from dask_efficiency.torch_traces.path.repairs import repaired
from dask_efficiency.torch_traces.summaries.breakdown import TimeParts, activity_of, has_gpu_work, window_of
from dask_efficiency.torch_traces.summaries.collectives import collectives_of
from dask_efficiency.torch_traces.summaries.copies import copies_of
from dask_efficiency.torch_traces.summaries.idle import (
    IdleTimes,
    StreamIdle,
    idle_by_stream,
    idle_reasons,
)
from dask_efficiency.torch_traces.summaries.launches import StreamLaunches, launches_of, queue_through
from dask_efficiency.torch_traces.summaries.losses import RankLosses, losses_of
from dask_efficiency.torch_traces.summaries.memory import memory_of
from dask_efficiency.torch_traces.summaries.steps import StepTimes, step_times
from dask_efficiency.torch_traces.summaries.work import work_of

#: By field of :class:`RankSummary`, the function of a trace that makes its tables. Each returns something small that
#: can be pickled; :data:`dask_efficiency.torch_traces.summaries.tables.TABLES` merges those of all ranks.
MADE_OF_TRACE: Mapping[str, Any] = {
    "work": work_of,
    "copies": copies_of,
    "collectives": collectives_of,
    "memory": memory_of,
}


@dataclass(frozen=True, slots=True)
class RankSummary:
    """Summary of one rank."""

    #: Its place in the job.
    job: JobRank
    #: Number of events.
    events: int
    #: True if the trace shows work on a GPU; else the breakdown is of its threads.
    on_gpu: bool
    #: One row each: all of the rank's time.
    breakdown: TimeParts
    #: Nanoseconds from its first work to its last.
    working: int
    idle: IdleTimes
    streams: StreamIdle
    launches: StreamLaunches
    #: Works in the queues through the rank's time.
    queue: tuple[float, ...]
    steps: StepTimes
    losses: RankLosses
    #: What the functions of :data:`MADE_OF_TRACE` made, by their names.
    made: Mapping[str, Any]
    #: Number of launches, and of those without work in the trace.
    asked: int
    lost: int
    #: Number of what was left out by reason, and sentences on what was changed.
    left_out: Mapping[str, int]
    notes: tuple[str, ...]

    @property
    def rank(self) -> int:
        """Number in the job."""
        return self.job.rank

    @property
    def seconds(self) -> float:
        """Time from the first event to the last."""
        return int(self.breakdown.length[0]) / 1e9


def rank_summary(trace: RankTrace) -> RankSummary:
    """Summarise the trace of one rank."""
    job = JobRank.of(trace)
    trace = repaired(trace)
    window = window_of(trace)
    whole = IntervalArrays(np.array(window[:1]), np.array(window[1:]))
    activity = activity_of(trace)
    reasons = idle_reasons(trace, window, activity.busy)
    launches = Launches.of(trace)
    steps = step_times(trace, activity, reasons)
    return RankSummary(
        job=job,
        events=len(trace.events),
        on_gpu=has_gpu_work(trace),
        breakdown=TimeParts.of(trace, activity, whole),
        working=int(activity.busy.stop[-1] - activity.busy.start[0]) if len(activity.busy.start) else 0,
        idle=IdleTimes.of(reasons, whole),
        streams=idle_by_stream(trace),
        launches=launches_of(trace),
        queue=tuple(queue_through(trace, window).tolist()),
        steps=steps,
        losses=losses_of(trace, activity, reasons, steps),
        made={name: make(trace) for name, make in MADE_OF_TRACE.items()},
        asked=len(launches.call),
        lost=int(np.count_nonzero(~launches.recorded)),
        left_out=trace.left_out,
        notes=trace.notes,
    )
