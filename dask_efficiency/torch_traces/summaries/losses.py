"""Losses: what each rank's wall clock could lose at most if something did not cost it, by bounds and by replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from dask_efficiency.accounts.tables import Bool
from dask_efficiency.gpu.intervals import NOTHING, IntervalArrays, difference, intersection, length, union
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.show.finding import WORTH_FINDING
from dask_efficiency.torch_traces.kineto.columns import UNREADABLE_EVENTS
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import Category, KinetoTrace, RankTrace
from dask_efficiency.torch_traces.path.known import MAX_UNKNOWN, Launches
from dask_efficiency.torch_traces.path.path import critical_path
from dask_efficiency.torch_traces.path.roles import awaited_copies, events_named
from dask_efficiency.torch_traces.path.stalls import DATA_LOADING
from dask_efficiency.torch_traces.summaries.breakdown import Activity, covered, has_gpu_work, together, window_of
from dask_efficiency.torch_traces.summaries.idle import IdleReasons
from dask_efficiency.torch_traces.summaries.launches import TINY
from dask_efficiency.torch_traces.summaries.steps import StepTimes, before_first_work, outlying


class TorchLoss(StrEnum):
    """Kind of loss."""

    #: The GPU was idle, as nothing was asked of it or the launch was on its way.
    HOST = "torch/host-bound"
    #: The same, where most kernels are tiny.
    TINY_KERNELS = "torch/tiny-kernels"
    GAPS = "torch/gaps"
    EXPOSED = "torch/exposed-communication"
    CPU_COLLECTIVES = "torch/cpu-collectives"
    SYNC_COPIES = "torch/synchronous-copies"
    PAGEABLE = "torch/pageable-memory"
    DATA = "torch/waiting-for-data"
    MEMORY = "torch/memory-calls"
    STEP_START = "torch/idle-at-step-start"
    #: Steps took longer than most.
    LONG_STEPS = "torch/long-steps"


#: By loss, what a replay of the rank's path leaves out, as ``what_if(without=...)``.
REPLAYED: Mapping[TorchLoss, str] = {
    TorchLoss.GAPS: "kernel-gap",
    TorchLoss.EXPOSED: "gpu-communication",
    TorchLoss.DATA: "data-loading",
    TorchLoss.SYNC_COPIES: "gpu-sync",
}

#: Events of a trace above which nothing is replayed: that would take as long as reading it again, and some memory.
MAX_REPLAYED = 1_000_000


@dataclass(frozen=True, slots=True)
class RankLosses:
    """Losses of one rank, in nanoseconds."""

    #: At most, by what the GPU did meanwhile.
    bounds: Mapping[TorchLoss, int]
    #: By a replay of the rank alone, for some of those that are worth it.
    replayed: Mapping[TorchLoss, int]
    #: Number of kernels, and of those below :data:`~dask_efficiency.torch_traces.summaries.launches.TINY`.
    kernels: int
    tiny: int

    def saved(self, loss: TorchLoss) -> int:
        """Nanoseconds that its cure could save at most: the smaller of bound and replay."""
        bound = self.bounds.get(loss, 0)
        return min(bound, self.replayed.get(loss, bound))


def losses_of(trace: RankTrace, activity: Activity, reasons: IdleReasons, steps: StepTimes) -> RankLosses:
    """Find the losses of a rank; none where more than a tenth of what they rest on was not recorded."""
    events = trace.events
    kernels = events.category == Category.KERNEL
    tiny = kernels & (events.stop - events.start < TINY)
    counts = int(kernels.sum()), int(tiny.sum())
    if not _is_known(trace):
        return RankLosses({}, {}, *counts)
    bounds = _of_steps(steps, activity, reasons)
    if has_gpu_work(trace) or not np.any(events.category == Category.UNKNOWN):
        bounds[TorchLoss.DATA] = length(reasons.data)
        bounds[TorchLoss.EXPOSED] = length(activity.exposed)
    if has_gpu_work(trace):
        few = 2 * counts[1] <= counts[0]
        bounds[TorchLoss.HOST if few else TorchLoss.TINY_KERNELS] = length(reasons.host) + length(reasons.launch)
        bounds[TorchLoss.GAPS] = length(reasons.gap)
        bounds[TorchLoss.MEMORY] = length(reasons.memory)
        bounds[TorchLoss.CPU_COLLECTIVES] = length(reasons.ranks)
        bounds |= _of_copies(trace, activity)
    start, stop = window_of(trace)
    worth = {loss for loss, bound in bounds.items() if bound >= WORTH_FINDING * (stop - start) > 0}
    return RankLosses({loss: bound for loss, bound in bounds.items() if bound}, _replayed(trace, worth), *counts)


def _is_known(trace: RankTrace) -> bool:
    launches = Launches.of(trace)
    unreadable = sum(count for reason, count in trace.left_out.items() if reason in UNREADABLE_EVENTS)
    lost = np.count_nonzero(~launches.recorded) > MAX_UNKNOWN * len(launches.recorded)
    return not lost and unreadable <= MAX_UNKNOWN * (len(trace.events) + unreadable)


def _of_steps(steps: StepTimes, activity: Activity, reasons: IdleReasons) -> dict[TorchLoss, int]:
    """Time at the start of steps, and beyond the median of those that took longer; of steps that overlap, once."""
    if not len(steps):
        return {}
    before = before_first_work(IntervalArrays(steps.start, steps.stop), activity.busy)
    at_start = intersection(union(*before), together(reasons.host, reasons.launch))
    median = int(np.median(steps.length))
    longer = outlying(steps.length) & (steps.length > median)
    beyond = union(steps.start[longer] + median, steps.stop[longer])
    return {TorchLoss.STEP_START: length(at_start), TorchLoss.LONG_STEPS: length(beyond)}


def _of_copies(trace: RankTrace, activity: Activity) -> dict[TorchLoss, int]:
    """Time in which the GPU did not compute, as it copied pageable memory, or a thread waited for a copy."""
    events = trace.events
    works = activity._replace(copies=NOTHING).busy

    awaited = mask_of(awaited_copies(trace), len(events))
    pageable = events_named(trace, lambda name: "Pageable" in name) & (events.category == Category.COPY)

    def lost(copies: Bool, waited_for: Bool) -> int:
        calls = mask_of(events.call[waited_for & awaited], len(events))
        return length(difference(covered(trace, copies | calls), works))

    return {
        TorchLoss.PAGEABLE: lost(pageable, pageable),
        TorchLoss.SYNC_COPIES: lost(awaited & ~pageable, ~pageable),
    }


def _replayed(trace: RankTrace, worth: set[TorchLoss]) -> dict[TorchLoss, int]:
    """Savings of some losses by the what-if of the rank's own path."""
    wanted = [loss for loss in REPLAYED if loss in worth]
    if not wanted or len(trace.events) > MAX_REPLAYED:
        return {}
    try:
        # annotations that load data have nodes of their own only if they are asked for
        path = critical_path(KinetoTrace((trace,)), data_loading=DATA_LOADING)
    except EmptyTraceError:
        return {}
    return {loss: max(round(1e9 * path.saved_seconds(without=[REPLAYED[loss]])), 0) for loss in wanted}
