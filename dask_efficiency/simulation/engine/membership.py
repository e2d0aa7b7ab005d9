"""Membership: when workers join, retire and leave, in the recorded run and in the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed.active_memory_manager import ActiveMemoryManagerExtension, RetireWorker
from distributed.core import Status

from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.runs.trace.schema import RunOutcome, WorkerChange
from dask_efficiency.simulation.engine.recording import RunRecorder
from dask_efficiency.simulation.engine.scheduler import VirtualScheduler
from dask_efficiency.simulation.engine.worker import VirtualWorker
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.events import EventHeap

_CHANGES = (WorkerChange.JOINED, WorkerChange.LEFT, WorkerChange.RETIRING)


@dataclass(frozen=True, slots=True)
class PlannedWorker:
    """Worker, and when it joins and leaves; nanoseconds after the start of the run."""

    spec: WorkerSpec
    #: 0 is at the start.
    joins: int = 0
    #: Instant at which it is retired, and hands over its results before it leaves; -1 is never.
    retires: int = -1
    #: Instant at which it leaves at once; -1 is never.
    leaves: int = -1
    #: True if it is lost, so that Dask suspects the tasks that run on it.
    lost: bool = False


def planned_workers(trace: RunTrace, cluster: ClusterSpec) -> tuple[PlannedWorker, ...]:
    """Plan when the workers of a cluster join and leave.

    Workers with the names of the recorded ones join and leave at the recorded instants; if the names differ, all are
    there all the time.
    """
    by_name = {worker.name: worker for worker in cluster.workers}
    if not changed(trace) or {worker.name for worker in trace.workers} != {*by_name}:
        return tuple(PlannedWorker(worker) for worker in cluster.workers)
    events, found = trace.worker_events, []
    lost = trace.runs.worker[trace.runs.outcome == RunOutcome.LOST]
    for number, recorded in enumerate(trace.workers):
        at = {
            change: np.maximum(events.at[(events.worker == number) & (events.change == change)] - trace.start, 0)
            for change in _CHANGES
        }
        joined, left, retiring = (at[change] for change in _CHANGES)
        retires = int(retiring[0]) if len(retiring) and len(left) else -1
        found.append(
            PlannedWorker(
                replace(by_name[recorded.name], address=recorded.address, host=recorded.host),
                joins=int(joined[0]) if len(joined) else 0,
                retires=retires,
                leaves=int(left[-1]) if len(left) and retires < 0 else -1,
                lost=number in lost,
            )
        )
    return tuple(found)


def changed(trace: RunTrace) -> bool:
    """True if workers joined or left while a run was recorded."""
    events = trace.worker_events
    return bool((np.isin(events.change, _CHANGES) & (events.at > trace.start)).any())


def membership_note(trace: RunTrace, cluster: ClusterSpec) -> tuple[str, ...]:
    """Note how a simulation treats workers that joined or left; empty if none did."""
    if not changed(trace):
        return ()
    if {worker.name for worker in trace.workers} != {worker.name for worker in cluster.workers}:
        return ("Workers came or went in the recorded run: here, all are there from its start to its end.",)
    return ("Workers come and go when they did in the recorded run.",)


#: Nanoseconds between two runs of the memory manager that moves results off a retiring worker, and between two checks
#: for its end: as in ``Scheduler.retire_workers``, where the latter grow with the number of results.
MANAGER, LOOK = 2_000_000_000, 10_000_000


def at_once(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that never waits to its end.

    Raises
    ------
    RuntimeError
        If it waits.
    """
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("Dask's scheduler waits for something while a worker joins or leaves a simulated cluster")


class Membership:
    """Makes workers join and leave.

    Parameters
    ----------
    workers
        Present workers, by address.
    join
        Makes a worker and tells the scheduler.
    """

    def __init__(
        self,
        clock: EventHeap,
        scheduler: VirtualScheduler,
        recorder: RunRecorder,
        workers: dict[str, VirtualWorker],
        join: Callable[[PlannedWorker, str], Coroutine[Any, Any, None]],
    ) -> None:
        self._clock, self._scheduler, self._recorder = clock, scheduler, recorder
        self._workers, self._join = workers, join

    def plan(self, stay: PlannedWorker, address: str) -> None:
        """Schedule a worker's joining and leaving."""
        start = self._clock.now
        if stay.joins > 0:
            self._clock.at(start + stay.joins, self._come, stay, address)
        if stay.retires >= 0:
            self._clock.at(start + stay.retires, self._retire, address)
        if stay.leaves >= 0:
            self._clock.at(start + stay.leaves, self._leave, address, not stay.lost)

    def _come(self, stay: PlannedWorker, address: str) -> None:
        at_once(self._join(stay, address))
        self._recorder.changed(address, WorkerChange.JOINED)

    def _leave(self, address: str, expected: bool) -> None:
        worker = self._workers.pop(address, None)
        if worker is None:
            return
        worker.close()
        stimulus = f"worker-removed-{self._clock.now / 1e9:.9f}"
        at_once(self._scheduler.remove_worker(address, stimulus_id=stimulus, expected=expected, close=False))
        self._recorder.changed(address, WorkerChange.LEFT, stimulus)

    def _retire(self, address: str) -> None:
        state = self._scheduler.workers.get(address)
        if state is None:
            return
        stimulus = f"retire-workers-{self._clock.now / 1e9:.9f}"
        manager = ActiveMemoryManagerExtension(
            self._scheduler, policies=set(), register=False, start=False, interval=2.0
        )
        policy = RetireWorker(address)
        manager.add_policy(policy)
        self._scheduler.handle_worker_status_change(Status.closing_gracefully, state, stimulus)
        message = {"op": "worker-status-change", "status": "closing_gracefully", "stimulus_id": stimulus}
        self._scheduler.stream_comms[address].send(message)
        self._recorder.changed(address, WorkerChange.RETIRING)
        self._manage(address, manager)
        self._look(address, policy)

    def _manage(self, address: str, manager: ActiveMemoryManagerExtension) -> None:
        if manager.policies and address in self._workers:
            manager.run_once()
            self._clock.at(self._clock.now + MANAGER, self._manage, address, manager)

    def _look(self, address: str, policy: RetireWorker) -> None:
        if address not in self._workers:
            return
        if not policy.done():
            self._clock.at(self._clock.now + LOOK, self._look, address, policy)
        elif policy.no_recipients:
            stimulus = f"worker-status-change-{self._clock.now / 1e9:.9f}"
            message = {"op": "worker-status-change", "status": "running", "stimulus_id": stimulus}
            self._scheduler.stream_comms[address].send(message)
        else:
            self._leave(address, True)
