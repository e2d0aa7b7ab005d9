"""TaskThreads: what the tasks of a worker use in their threads, so far and in all."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dask_efficiency.activity import SlotReservation
from dask_efficiency.gpu.records import TaskId, TaskWindow
from dask_efficiency.ledger import Used
from dask_efficiency.plugins.worker.executor import ActorTimer, TaskMeter, ThreadRun, live_used
from dask_efficiency.plugins.worker.submit import MeteredSubmit, WorkerCalls

if TYPE_CHECKING:
    from distributed import Worker
    from distributed.worker_state_machine import TaskState

#: Tasks that end between two looks of whoever watches the GPU; beyond, the oldest go.
MAX_WINDOWS = 100_000


class TaskThreads:
    """Meters what a worker runs on its executors, and reads what was measured.

    Parameters
    ----------
    worker
        The worker.
    failed
        Told, in a task's thread, of a failure of the measuring itself.
    """

    def __init__(self, worker: Worker, failed: Callable[[Exception], object]) -> None:
        self._worker = worker
        self._state = worker.state
        self._failed = failed
        #: Nanoseconds in tasks whose CPU time nobody can tell: coroutines, process pools.
        self.not_measured = 0
        #: CPU nanoseconds in the tasks that ended.
        self._cpu = 0
        #: From when to when each thread worked for a task; None while nobody wants to know.
        self._windows: deque[TaskWindow] | None = None
        #: The meters by the names of their executors.
        self._meters: dict[str, TaskMeter] = {}
        self._timer = ActorTimer()
        #: What stands in the place of the executors' ``submit``, with what this worker meters there.
        self._placed: list[tuple[MeteredSubmit, WorkerCalls]] = []

    def attach(self) -> None:
        """Meter every executor of threads; one that cannot be metered in its place is left alone."""
        meters: dict[int, TaskMeter] = {}
        for name, executor in self._worker.executors.items():
            # By this upstream tells them from those to which it sends tasks without their threads' table.
            if "ThreadPoolExecutor" not in str(type(executor)):
                continue
            if id(executor) not in meters:
                calls = WorkerCalls(self._worker.active_threads, TaskMeter(self._failed), self._timer)
                placed = MeteredSubmit.attach(executor, calls)
                if placed is None:
                    continue
                self._placed.append((placed, calls))
                meters[id(executor)] = calls.tasks
            self._meters[name] = meters[id(executor)]

    def restore(self) -> None:
        """Leave the worker's executors as they were."""
        self.unwatch()
        for placed, calls in self._placed:
            placed.detach(calls)
        self._placed.clear()
        self._meters.clear()

    @property
    def metered(self) -> tuple[TaskMeter, ...]:
        """The meters of all executors, each once."""
        return tuple(calls.tasks for _, calls in self._placed)

    @property
    def actors(self) -> int:
        """Nanoseconds in the methods of actors."""
        return self._timer.spent

    def record(self, recording: bool) -> None:
        """Whether each run also notes when it was submitted, and on which thread it ran."""
        for meter in self.metered:
            meter.recording = recording

    def native_ids(self) -> set[int]:
        """Native ids of the threads that run tasks, as far as the executors tell."""
        pools = (getattr(placed.executor, "_threads", ()) for placed, _ in self._placed)
        return {thread.native_id for pool in pools for thread in list(pool) if thread.native_id is not None}

    def cpu(self) -> int:
        """CPU nanoseconds in all tasks so far, whatever became of them: those that run, and have just ended, too."""
        just_done = sum(run.used[2] for meter in self.metered for run in meter.unclaimed())
        return self._cpu + just_done + sum(cpu for cpu, _ in self.live().values())

    # -- for whoever watches the GPU ---------------------------------------------------------

    @property
    def watched(self) -> bool:
        """Whether windows are noted."""
        return self._windows is not None

    def windows(self) -> list[TaskWindow]:
        """Of the tasks that run (``stop`` is -1), then of those that ended since the last call.

        They are noted from the first call on. Called from another thread.
        """
        meters = self.metered
        if self._windows is None:
            self._windows = deque(maxlen=MAX_WINDOWS)
            for meter in meters:
                meter.windows = self._windows
        ended = self._windows
        running = [
            TaskWindow(TaskId(ident, start), -1) for meter in meters for ident, (start, _) in list(meter.live.items())
        ]
        # After those that run: a task that ends in between is in both, and none in neither.
        return running + [ended.popleft() for _ in range(len(ended))]

    def surround(self, around: Callable[[TaskId], Callable[[], object]] | None) -> None:
        """Call this in each task's thread before the task, and what it gives after it."""
        for meter in self.metered:
            meter.around = around

    def unwatch(self) -> None:
        """Note no windows any more."""
        self._windows = None
        self.surround(None)
        for meter in self.metered:
            meter.windows = None

    def running(self) -> dict[TaskId, Any]:
        """Keys of the tasks in metered threads."""
        meters = self.metered
        with self._worker.active_threads_lock:
            return {
                TaskId(ident, meter.live[ident][0]): key
                for ident, key in self._worker.active_threads.items()
                for meter in meters
                if ident in meter.live
            }

    # -- what they used ----------------------------------------------------------------------

    def claim(self, key: Any, reservation: SlotReservation) -> tuple[tuple[int, int, int], TaskId | None]:
        """What an ended task used in its thread, to be asked once.

        Returns
        -------
        times
            When its thread began and stopped, by the monotonic clock, and the CPU time between, in nanoseconds.
        window
            Its window's id, where windows are noted and all its time in the thread was in its slot.
        """
        runs = self._state.threads
        run = runs.get(key)
        if type(run) is ThreadRun:
            runs[key] = int(run)
            run.claimed = True
            times = began, stopped, cpu = run.used
            self._cpu += cpu
            if self._windows is None or began < reservation.start or stopped > reservation.stop:
                return times, None
            return times, TaskId(int(run), began)
        # A coroutine, a process pool, or a thread that was at work before the meter came.
        log = self._state.stimulus_log
        event = log[-1] if log else None
        start, stop = getattr(event, "start", None), getattr(event, "stop", None)
        wall = 0
        if start is not None and stop is not None and getattr(event, "key", None) == key:
            wall = min(max(0, round((stop - start) * 1e9)), reservation.ns)
            self.not_measured += wall
        return (reservation.start, reservation.start + wall, 0), None

    def live(self) -> dict[Any, tuple[int, int]]:
        """(CPU, wall) nanoseconds so far of the tasks in metered threads, by key."""
        return live_used(self._worker, self.metered)

    def waiting(self) -> int:
        """Tasks that hold slots while their threads are done or have not begun: they wait for the event loop."""
        at_work = sum(len(meter.live) for meter in self.metered) - len(self._state.long_running)
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
        for key, (start, stop, cpu) in self._just_done(held, used).items():
            used[key] = Used(cpu, stop - start, spill=spilled(held[key].start, start) + spilled(stop, at))
        not_begun = {
            key: Used(0, 0, spill=spilled(reservation.start, at))
            for key, reservation in held.items()
            if key not in used
        }
        return used | not_begun

    def _just_done(
        self, held: Mapping[object, SlotReservation], known: Mapping[object, Used]
    ) -> dict[object, tuple[int, int, int]]:
        """(start, stop, CPU) of the tasks whose threads are done, which the event loop does not know yet.

        Which run is whose is not known either; but threads take tasks in the order in which they were
        submitted, and that is the order in which they took their slots.
        """
        runs = sorted(run.used for meter in self.metered for run in meter.unclaimed())
        unknown = sorted((key for key in held if key not in known), key=lambda key: held[key].start)
        return dict(zip(unknown, runs, strict=False))

    def _measured_elsewhere(self, ts: TaskState) -> bool:
        executor = (ts.annotations or {}).get("executor", "default")
        return executor not in self._meters or bool(getattr(ts.run_spec, "is_coro", False))
