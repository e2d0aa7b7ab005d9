"""RankSummary: what is kept of one rank's trace: small tables, and no event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dask_efficiency.gpu.intervals import IntervalArrays
from dask_efficiency.torch_traces.kineto.load import JobRank
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.collectives import RankExchanges
from dask_efficiency.torch_traces.path.known import Launches
from dask_efficiency.torch_traces.path.repairs import repaired
from dask_efficiency.torch_traces.summaries.breakdown import TimeParts, activity_of, window_of
from dask_efficiency.torch_traces.summaries.copies import Copies, copies_of
from dask_efficiency.torch_traces.summaries.idle import StreamIdle, idle_by_stream, idle_reasons
from dask_efficiency.torch_traces.summaries.launches import StreamLaunches, launches_of, queue_through
from dask_efficiency.torch_traces.summaries.losses import RankLosses, losses_of
from dask_efficiency.torch_traces.summaries.memory import Memory, memory_of
from dask_efficiency.torch_traces.summaries.steps import StepTimes, step_times
from dask_efficiency.torch_traces.summaries.work import Work, work_of


@dataclass(frozen=True, slots=True)
class RankSummary:
    """Summary of one rank."""

    #: Its place in the job.
    job: JobRank
    #: Number of events.
    events: int
    #: Number of GPUs with work; if none has any, the breakdown is of the threads.
    gpus: int
    #: One row each: all of the rank's time.
    breakdown: TimeParts
    #: Nanoseconds from its first work to its last.
    working: int
    #: Nanoseconds of idle time by reason.
    idle: Mapping[str, int]
    streams: StreamIdle
    launches: StreamLaunches
    #: Works in the queues through the rank's time.
    queue: tuple[float, ...]
    steps: StepTimes
    losses: RankLosses
    work: Work
    copies: Copies
    exchanges: RankExchanges
    memory: Memory
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
    def on_gpu(self) -> bool:
        """True if the trace shows work on a GPU."""
        return self.gpus > 0

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
        gpus=len(np.unique(trace.events.device[trace.events.is_gpu_work])),
        breakdown=TimeParts.of(activity, whole),
        working=int(activity.busy.stop[-1] - activity.busy.start[0]) if len(activity.busy.start) else 0,
        idle=reasons.lengths,
        streams=idle_by_stream(trace),
        launches=launches_of(trace),
        queue=tuple(queue_through(trace, window).tolist()),
        steps=steps,
        losses=losses_of(trace, activity, reasons, steps),
        work=work_of(trace),
        copies=copies_of(trace),
        exchanges=RankExchanges.of(trace),
        memory=memory_of(trace),
        asked=len(launches.call),
        lost=int(np.count_nonzero(~launches.recorded)),
        left_out=trace.left_out,
        notes=trace.notes,
    )
