"""When workers came and went in a recorded run, for a simulation of it on the same cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.runs.trace.schema import Outcome, WorkerChange
from dask_efficiency.simulation.model.cluster import ClusterSpec

_CHANGES = (WorkerChange.JOINED, WorkerChange.LEFT, WorkerChange.RETIRING)


@dataclass(frozen=True, slots=True)
class Stay:
    """A worker, and when it was there; nanoseconds after the start of the run."""

    spec: WorkerSpec
    #: 0 is from the start on.
    joins: int = 0
    #: When it was asked to leave, and hands over its results before; -1 is never.
    retires: int = -1
    #: When it was gone all at once; -1 is never.
    leaves: int = -1
    #: Whether it was lost, so that Dask suspects the tasks that ran on it.
    lost: bool = False


def stays(trace: RunTrace, cluster: ClusterSpec) -> tuple[Stay, ...]:
    """When the workers of a cluster are there.

    Where these are the recorded run's, by name, they come and go as they did then; where they are not, all are there
    all the time.
    """
    by_name = {worker.name: worker for worker in cluster.workers}
    if not changed(trace) or {worker.name for worker in trace.workers} != {*by_name}:
        return tuple(Stay(worker) for worker in cluster.workers)
    events, found = trace.worker_events, []
    lost = trace.runs.worker[trace.runs.outcome == Outcome.LOST]
    for number, recorded in enumerate(trace.workers):
        at = {
            change: np.maximum(events.at[(events.worker == number) & (events.change == change)] - trace.start, 0)
            for change in _CHANGES
        }
        joined, left, retiring = (at[change] for change in _CHANGES)
        retires = int(retiring[0]) if len(retiring) and len(left) else -1
        found.append(
            Stay(
                replace(by_name[recorded.name], address=recorded.address, host=recorded.host),
                joins=int(joined[0]) if len(joined) else 0,
                retires=retires,
                leaves=int(left[-1]) if len(left) and retires < 0 else -1,
                lost=number in lost,
            )
        )
    return tuple(found)


def changed(trace: RunTrace) -> bool:
    """Whether workers came or went while a run was recorded."""
    events = trace.worker_events
    return bool((np.isin(events.change, _CHANGES) & (events.at > trace.start)).any())


def notes_on(trace: RunTrace, cluster: ClusterSpec) -> tuple[str, ...]:
    """What a simulation does about it, in a sentence."""
    if not changed(trace):
        return ()
    if {worker.name for worker in trace.workers} != {worker.name for worker in cluster.workers}:
        return ("Workers came or went in the recorded run: here, all are there from its start to its end.",)
    return ("Workers come and go when they did in the recorded run.",)
