"""TaskThreads: what the tasks of a worker use in their threads, so far and in all."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dask_efficiency.gpu.records import TaskId, TaskWindow
from dask_efficiency.ledger import Hold, Used
from dask_efficiency.plugins.executor import MeteredThreadPoolExecutor, ThreadRun, TimedThreadPoolExecutor, live_used

if TYPE_CHECKING:
    from distributed import Worker
    from distributed.worker_state_machine import TaskState

#: Tasks that end between two looks of whoever watches the GPU; beyond, the oldest go.
MAX_WINDOWS = 100_000


class TaskThreads:
    """Puts metered executors in the place of a worker's own, and reads what they measured.

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
        #: From when to when each thread worked for a task; None while nobody wants to know.
        self._windows: deque[TaskWindow] | None = None
        self._executors: dict[str, Any] = {}
        self._actors: TimedThreadPoolExecutor | None = None

    def attach(self) -> None:
        """Meter every executor of threads."""
        wrapped: dict[int, MeteredThreadPoolExecutor] = {}
        for name, executor in self._worker.executors.items():
            if "ThreadPoolExecutor" not in str(type(executor)):
                continue
            if name == "actor":
                self._executors[name] = self._actors = TimedThreadPoolExecutor(executor)
            else:
                meter = wrapped.setdefault(id(executor), MeteredThreadPoolExecutor(executor, self._failed))
                self._executors[name] = meter
        self._worker.executors.update(self._executors)

    def restore(self) -> None:
        """Put the worker's own executors back."""
        self.unwatch()
        for name, executor in self._executors.items():
            original = executor.wrapped
            if self._worker.executors.get(name) is executor:
                self._worker.executors[name] = original
        self._executors.clear()

    @property
    def metered(self) -> Mapping[int, MeteredThreadPoolExecutor]:
        """The metered executors, each once."""
        return {id(e): e for e in self._executors.values() if isinstance(e, MeteredThreadPoolExecutor)}

    @property
    def actors(self) -> int:
        """Nanoseconds in the methods of actors."""
        return 0 if self._actors is None else self._actors.spent

    def record(self, recording: bool) -> None:
        """Whether each run also notes when it was submitted, and on which thread it ran."""
        for executor in self.metered.values():
            executor.recording = recording

    # -- for whoever watches the GPU ---------------------------------------------------------

    @property
    def watched(self) -> bool:
        """Whether windows are noted."""
        return self._windows is not None

    def windows(self) -> list[TaskWindow]:
        """Of the tasks that run (``stop`` is -1), then of those that ended since the last call.

        They are noted from the first call on. Called from another thread.
        """
        executors = self.metered.values()
        if self._windows is None:
            self._windows = deque(maxlen=MAX_WINDOWS)
            for executor in executors:
                executor.windows = self._windows
        ended = self._windows
        running = [
            TaskWindow(TaskId(ident, start), -1)
            for executor in executors
            for ident, (start, _) in list(executor.live.items())
        ]
        # After those that run: a task that ends in between is in both, and none in neither.
        return running + [ended.popleft() for _ in range(len(ended))]

    def surround(self, around: Callable[[TaskId], Callable[[], object]] | None) -> None:
        """Call this in each task's thread before the task, and what it gives after it."""
        for executor in self.metered.values():
            executor.around = around

    def unwatch(self) -> None:
        """Note no windows any more."""
        self._windows = None
        self.surround(None)
        for executor in self.metered.values():
            executor.windows = None

    def running(self) -> dict[TaskId, Any]:
        """Keys of the tasks in metered threads."""
        executors = self.metered.values()
        with self._worker.active_threads_lock:
            return {
                TaskId(ident, executor.live[ident][0]): key
                for ident, key in self._worker.active_threads.items()
                for executor in executors
                if ident in executor.live
            }

    # -- what they used ----------------------------------------------------------------------

    def used(self, key: Any, hold: Hold) -> tuple[int, int, TaskId | None]:
        """(CPU, wall) nanoseconds in the thread while an ended task held its slot.

        And its window's id, where its windows are noted and all its time there was in that slot.
        """
        threads = self._state.threads
        run = threads.get(key)
        if type(run) is ThreadRun:
            threads[key] = int(run)
            run.claimed = True
            began, ended, cpu = run.used
            wall = ended - began
            released = hold.start + hold.ns
            if began >= hold.start and ended <= released:
                return cpu, wall, None if self._windows is None else TaskId(int(run), began)
            # It ran before these accounts began, or on after it left its slot: pro rata.
            inside = max(0, min(ended, released) - max(began, hold.start))
            return (cpu * inside // wall if wall else 0), inside, None
        # A coroutine, a process pool, or a thread that was at work before the meter came.
        event = self._state.stimulus_log[-1]
        start, stop = getattr(event, "start", None), getattr(event, "stop", None)
        if start is None or stop is None or getattr(event, "key", None) != key:
            return 0, 0, None
        wall = min(max(0, round((stop - start) * 1e9)), hold.ns)
        self.not_measured += wall
        return 0, wall, None

    def live(self) -> dict[Any, tuple[int, int]]:
        """(CPU, wall) nanoseconds so far of the tasks in metered threads, by key."""
        return live_used(self._worker, self.metered.values())

    def waiting(self) -> int:
        """Tasks that hold slots while their threads are done or have not begun: they wait for the event loop."""
        at_work = sum(len(executor.live) for executor in self.metered.values()) - len(self._state.long_running)
        executing = self._state.executing
        return len(executing) - max(0, at_work) - sum(map(self._measured_elsewhere, executing))

    def so_far(self, held: Mapping[object, Hold], spilled: Callable[[int, int], int]) -> dict[object, Used]:
        """What the tasks that hold slots used so far, as far as it is known, by key.

        Parameters
        ----------
        held
            Those tasks.
        spilled
            Nanoseconds between two instants in which the event loop spilled.
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
            hold = held.get(key)
            used[key] = Used(cpu, wall, spill=spilled(hold.start, at - wall) if hold is not None else 0)
        for key, (start, stop, cpu) in self._just_done(held, used).items():
            used[key] = Used(cpu, stop - start, spill=spilled(held[key].start, start) + spilled(stop, at))
        not_begun = {key: Used(0, 0, spill=spilled(hold.start, at)) for key, hold in held.items() if key not in used}
        return used | not_begun

    def _just_done(
        self, held: Mapping[object, Hold], known: Mapping[object, Used]
    ) -> dict[object, tuple[int, int, int]]:
        """(start, stop, CPU) of the tasks whose threads are done, which the event loop does not know yet.

        Which run is whose is not known either; but threads take tasks in the order in which they were
        submitted, and that is the order in which they took their slots.
        """
        runs = sorted(run.used for executor in self.metered.values() for run in executor.unclaimed())
        unknown = sorted((key for key in held if key not in known), key=lambda key: held[key].start)
        return dict(zip(unknown, runs, strict=False))

    def _measured_elsewhere(self, ts: TaskState) -> bool:
        executor = (ts.annotations or {}).get("executor", "default")
        return executor not in self._executors or bool(getattr(ts.run_spec, "is_coro", False))
