"""Membership: workers that join a simulated cluster, retire and are lost, as Dask's scheduler takes it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from distributed.active_memory_manager import ActiveMemoryManagerExtension, RetireWorker
from distributed.core import Status

from dask_efficiency.runs.trace.schema import WorkerChange
from dask_efficiency.simulation.engine.recording import RunRecorder
from dask_efficiency.simulation.engine.scheduler import VirtualScheduler
from dask_efficiency.simulation.engine.worker import VirtualWorker
from dask_efficiency.simulation.model.comings import Stay
from dask_efficiency.simulation.model.events import EventHeap

#: Nanoseconds between two runs of the memory manager that moves results off a retiring worker, and between two looks
#: whether it is done: as in ``Scheduler.retire_workers``, where the latter grow with the number of results.
MANAGER, LOOK = 2_000_000_000, 10_000_000


def at_once(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run to its end a coroutine that waits for nothing.

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
    """Lets workers come and go.

    Parameters
    ----------
    workers
        Those that are there, by address.
    join
        Makes a worker and tells the scheduler.
    """

    def __init__(
        self,
        clock: EventHeap,
        scheduler: VirtualScheduler,
        recorder: RunRecorder,
        workers: dict[str, VirtualWorker],
        join: Callable[[Stay, str], Coroutine[Any, Any, None]],
    ) -> None:
        self._clock, self._scheduler, self._recorder = clock, scheduler, recorder
        self._workers, self._join = workers, join

    def plan(self, stay: Stay, address: str) -> None:
        """Let a worker come and go when it does."""
        start = self._clock.now
        if stay.joins > 0:
            self._clock.at(start + stay.joins, self._come, stay, address)
        if stay.retires >= 0:
            self._clock.at(start + stay.retires, self._retire, address)
        if stay.leaves >= 0:
            self._clock.at(start + stay.leaves, self._leave, address, not stay.lost)

    def _come(self, stay: Stay, address: str) -> None:
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
