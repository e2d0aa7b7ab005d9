"""Membership: when workers join, retire and leave, in the recorded run and in the simulated cluster."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed.active_memory_manager import ActiveMemoryManagerExtension, RetireWorker
from distributed.core import Status

from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.runs.trace.schema import RunOutcome, WorkerChange
from dask_efficiency.simulation.engine.worker import ClusterParts
from dask_efficiency.simulation.model.cluster import ClusterSpec

_CHANGES = (WorkerChange.JOINED, WorkerChange.LEFT, WorkerChange.RETIRING)


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """Worker, and when it joins and leaves: nanoseconds after the start of the run, -1 for never."""

    spec: WorkerSpec
    joins: int = 0
    #: When it hands over its results before it leaves, and when it leaves at once.
    retires: int = -1
    leaves: int = -1
    #: True if it is lost, so that Dask suspects the tasks that run on it.
    lost: bool = False


def planned_workers(trace: RunTrace, cluster: ClusterSpec) -> tuple[PlannedWorker, ...]:
    """Plan when workers come and go: as recorded if the names are those of the recorded ones, or else never."""
    by_name = {worker.name: worker for worker in cluster.workers}
    if not _changed(trace) or not _same_names(trace, cluster):
        return tuple(PlannedWorker(worker) for worker in cluster.workers)
    events, planned = trace.worker_events, []
    lost = trace.runs.worker[trace.runs.outcome == RunOutcome.LOST]
    for number, recorded in enumerate(trace.workers):
        joined, left, retiring = (
            np.maximum(events.at[(events.worker == number) & (events.change == change)] - trace.start, 0).tolist()
            for change in _CHANGES
        )
        retires = retiring[0] if retiring and left else -1
        planned.append(
            PlannedWorker(
                replace(by_name[recorded.name], address=recorded.address, host=recorded.host),
                joins=joined[0] if joined else 0,
                retires=retires,
                leaves=left[-1] if left and retires < 0 else -1,
                lost=number in lost,
            )
        )
    return tuple(planned)


def _changed(trace: RunTrace) -> bool:
    """True if workers joined or left while a run was recorded."""
    events = trace.worker_events
    return bool((np.isin(events.change, _CHANGES) & (events.at > trace.start)).any())


def _same_names(trace: RunTrace, cluster: ClusterSpec) -> bool:
    return {worker.name for worker in trace.workers} == {worker.name for worker in cluster.workers}


def membership_note(trace: RunTrace, cluster: ClusterSpec) -> tuple[str, ...]:
    """Note how a simulation treats workers that joined or left; empty if none did."""
    if not _changed(trace):
        return ()
    if _same_names(trace, cluster):
        return ("Workers come and go when they did in the recorded run.",)
    return ("Workers came or went in the recorded run: here, all are there from its start to its end.",)


#: Nanoseconds between two runs of the memory manager that moves results off a retiring worker, and between two checks
#: for its end: as in ``Scheduler.retire_workers``, where the latter grow with the number of results.
MANAGER, LOOK = 2_000_000_000, 10_000_000


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that never waits to its end."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("Dask's scheduler waits for something while a worker joins or leaves a simulated cluster")


class Membership:
    """A worker's joining, retiring and leaving."""

    def __init__(self, cluster: ClusterParts, stay: PlannedWorker, address: str) -> None:
        self._cluster, self._clock, self.stay, self.address = cluster, cluster.clock, stay, address

    def plan(self) -> None:
        """Schedule its joining and leaving."""
        start, stay = self._clock.now, self.stay
        if stay.joins > 0:
            self._clock.at(start + stay.joins, self._join)
        if stay.retires >= 0:
            self._clock.at(start + stay.retires, self._retire)
        if stay.leaves >= 0:
            self._clock.at(start + stay.leaves, self._leave, not stay.lost)

    def _join(self) -> None:
        _at_once(self._cluster.join(self.stay.spec, self.address))
        self._cluster.recorder.changed(self.address, WorkerChange.JOINED)

    def _leave(self, expected: bool) -> None:
        worker = self._cluster.workers.pop(self.address, None)
        if worker is None:
            return
        worker.close()
        stimulus = worker.stimulus("worker-removed")
        scheduler = self._cluster.scheduler
        _at_once(scheduler.remove_worker(self.address, stimulus_id=stimulus, expected=expected, close=False))
        self._cluster.recorder.changed(self.address, WorkerChange.LEFT, stimulus)

    def _retire(self) -> None:
        scheduler, worker = self._cluster.scheduler, self._cluster.workers.get(self.address)
        if worker is None:
            return
        stimulus = worker.stimulus("retire-workers")
        manager = ActiveMemoryManagerExtension(scheduler, policies=set(), register=False, start=False, interval=2.0)
        policy = RetireWorker(self.address)
        manager.add_policy(policy)
        scheduler.handle_worker_status_change(Status.closing_gracefully, scheduler.workers[self.address], stimulus)
        self._tell("closing_gracefully", stimulus)
        self._cluster.recorder.changed(self.address, WorkerChange.RETIRING)
        self._manage(manager)
        self._look(policy)

    def _manage(self, manager: ActiveMemoryManagerExtension) -> None:
        if manager.policies and self.address in self._cluster.workers:
            manager.run_once()
            self._clock.at(self._clock.now + MANAGER, self._manage, manager)

    def _look(self, policy: RetireWorker) -> None:
        worker = self._cluster.workers.get(self.address)
        if worker is None:
            return
        if not policy.done():
            self._clock.at(self._clock.now + LOOK, self._look, policy)
        elif policy.no_recipients:
            self._tell("running", worker.stimulus("worker-status-change"))
        else:
            self._leave(True)

    def _tell(self, status: str, stimulus: str) -> None:
        message = {"op": "worker-status-change", "status": status, "stimulus_id": stimulus}
        self._cluster.scheduler.stream_comms[self.address].send(message)
