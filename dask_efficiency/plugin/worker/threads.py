"""TaskThreads: what the tasks of a worker use in their threads, so far and in all."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from dask_efficiency.accounts.worker.activity import SlotReservation
from dask_efficiency.accounts.worker.balance import Used
from dask_efficiency.accounts.worker.log import Run
from dask_efficiency.gpu.records import TaskId, TaskWindow
from dask_efficiency.plugin.worker.task_meter import MAX_UNCLAIMED, TaskMeter, live_used

if TYPE_CHECKING:
    from distributed import Worker
    from distributed.worker_state_machine import TaskState

#: Tasks that end between two looks of whoever watches the GPU; beyond, the oldest go.
MAX_WINDOWS = 100_000


#: Called in a task's thread before it, with its key; what it gives, if anything, is called there after it.
Around: TypeAlias = Callable[[TaskId, Any], Callable[[], object] | None]


class TaskThreads:
    """Meters what a worker runs in its threads, and reads what was measured.

    Parameters
    ----------
    worker
        The worker.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._state = worker.state
        self.meter = TaskMeter(worker.active_threads)
        #: Nanoseconds in tasks whose CPU time nobody can tell: coroutines, process pools.
        self.not_measured = 0
        #: CPU nanoseconds in the tasks that ended, as their accounts count them.
        self.claimed = 0
        #: From when to when each thread worked for a task; None while nobody wants to know.
        self._windows: deque[TaskWindow] | None = None
        #: What is called around tasks, by who wants that.
        self._around: dict[str, Around | None] = {"profiles": None, "gpu": None}
        self._placing = threading.Lock()

    def attach(self) -> None:
        """Meter the worker's tasks."""
        self.meter.attach()

    def restore(self) -> None:
        """Meter them no more."""
        self.unwatch()
        self.meter.detach()

    @property
    def actors(self) -> int:
        """Nanoseconds in the methods of actors."""
        return self.meter.in_methods

    def native_ids(self) -> set[int]:
        """Native ids of the threads that run tasks, as far as the executors tell."""
        pools = (
            getattr(executor, "_threads", ()) for executor in self._worker.executors.values() if _is_threads(executor)
        )
        return {thread.native_id for pool in pools for thread in list(pool) if thread.native_id is not None}

    def cpu(self) -> int:
        """CPU nanoseconds in all tasks so far, whatever became of them, once those that ended are finalized."""
        done = self.meter.done
        for key in list(done)[:-MAX_UNCLAIMED]:
            self.claimed += done.pop(key)[2]
        return (
            self.claimed + sum([run[2] for run in done.copy().values()]) + sum(cpu for cpu, _ in self.live().values())
        )

    # -- for whoever watches the GPU ---------------------------------------------------------

    @property
    def watched(self) -> bool:
        """Whether windows are noted."""
        return self._windows is not None

    def windows(self) -> list[TaskWindow]:
        """Of the tasks that run (``stop`` is -1), then of those that ended since the last call.

        They are noted from the first call on. Called from another thread.
        """
        if self._windows is None:
            self._windows = self.meter.windows = deque(maxlen=MAX_WINDOWS)
        ended = self._windows
        live = list(self.meter.live.items())
        running = [TaskWindow(TaskId(ident, start), -1, key) for ident, (start, _, key) in live]
        # After those that run: a task that ends in between is in both, and none in neither.
        return running + [ended.popleft() for _ in range(len(ended))]

    def surround(self, around: Around | None) -> None:
        """Call this in each task's thread before the task, and what it gives after it."""
        self._place(gpu=around)

    def unwatch(self) -> None:
        """Note no windows any more."""
        self._windows = self.meter.windows = None
        self._place(gpu=None)

    def profile(self, around: Around | None) -> None:
        """The same for whoever profiles tasks; it is called first, and what it gives last."""
        self._place(profiles=around)

    def _place(self, **around: Around | None) -> None:
        with self._placing:  # from the event loop, the watch's thread and tasks'
            self._around |= around
            profiles, gpu = self._around["profiles"], self._around["gpu"]
            both = None if profiles is None or gpu is None else partial(_nested, profiles, gpu)
            self.meter.around = both or profiles or gpu

    # -- what they used ----------------------------------------------------------------------

    def told_elsewhere(self, key: Any) -> int:
        """Nanoseconds of a task that ends now and ran in no thread of ours, as upstream says; 0 where it does not.

        It was a coroutine, or in a process pool, or began before the meter.
        """
        log = self._state.stimulus_log
        event = log[-1] if log else None
        start, stop = getattr(event, "start", None), getattr(event, "stop", None)
        if start is None or stop is None or getattr(event, "key", None) != key:
            return 0
        return max(0, round((float(stop) - float(start)) * 1e9))

    def elsewhere(self, start: int, wall: int) -> Run:
        """Count such a task, from when it had its slot; what it used of the CPU nobody can tell."""
        self.not_measured += wall
        return start, start + wall, 0, 0, -1

    def live(self) -> dict[Any, tuple[int, int]]:
        """(CPU, wall) nanoseconds so far of the tasks in metered threads, by key."""
        return live_used(self._worker, self.meter)

    def waiting(self) -> int:
        """Tasks that hold slots while their threads are done or have not begun: they wait for the event loop."""
        at_work = len(self.meter.live) - len(self._state.long_running)
        executing = self._state.executing
        return len(executing) - max(0, at_work) - sum(map(self._measured_elsewhere, executing))

    def so_far(
        self,
        held: Mapping[object, SlotReservation],
        spilled: Callable[[int, int], int],
        library: Callable[[SlotReservation, int], int],
    ) -> dict[object, Used]:
        """What the tasks that hold slots used so far, as far as it is known, by key.

        Parameters
        ----------
        held
            Those tasks.
        spilled
            Nanoseconds between two instants in which the event loop spilled.
        library
            Of so many nanoseconds that a task waited, those in which threads of libraries computed.
        """
        executing = self._state.executing
        if not executing:
            return {}
        at = time.monotonic_ns()
        # Coroutines and process pools: no thread of ours to read, but at work since then.
        now = time.time()
        used: dict[object, Used] = {
            ts.key: Used(0, max(0, round((now - ts.start_time) * 1e9)))
            for ts in executing
            if ts.start_time is not None and self._measured_elsewhere(ts)
        }
        for key, (cpu, wall) in self.live().items():
            reservation = held.get(key)
            if reservation is None:
                used[key] = Used(cpu, wall)
            else:
                computed = library(reservation, wall - cpu)
                used[key] = Used(cpu, wall, library=computed, spill=spilled(reservation.start, at - wall))
        done = self.meter.done
        for key, reservation in held.items():
            run = done.get(key)
            if run is not None and key not in used:  # its thread is done, which the event loop does not know yet
                start, stop, cpu, _, _ = run
                used[key] = Used(cpu, stop - start, spill=spilled(reservation.start, start) + spilled(stop, at))
        not_begun = {
            key: Used(0, 0, spill=spilled(reservation.start, at))
            for key, reservation in held.items()
            if key not in used
        }
        return used | not_begun

    def _measured_elsewhere(self, ts: TaskState) -> bool:
        if not self.meter.attached or getattr(ts.run_spec, "is_coro", False):
            return True
        executor = self._worker.executors.get((ts.annotations or {}).get("executor", "default"))
        return not _is_threads(executor)


def _nested(outer: Around, inner: Around, task: TaskId, key: Any) -> Callable[[], object]:
    last = outer(task, key)
    try:
        first = inner(task, key)
    except BaseException:
        if last is not None:
            last()
        raise

    def after() -> None:
        try:
            if first is not None:
                first()
        finally:
            if last is not None:
                last()

    return after


def _is_threads(executor: object) -> bool:
    """Whether tasks run in threads of this executor; by its name upstream tells them from others."""
    return "ThreadPoolExecutor" in str(type(executor))
