"""TaskMeter: what a task used in its thread, measured in that thread; ActorTimer: the same of actors' methods."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from dask_efficiency.gpu.records import TaskId, TaskWindow


class ThreadRun(int):
    """A thread's ident, as upstream passes it on, that remembers what one task used there.

    It takes the place of ``result["thread"]`` and so arrives in ``state.threads[key]``: the only
    way from the thread to the finishing hook that cannot be confused with another task's, and
    that leaves nothing behind.
    """

    #: (start, stop) by the monotonic clock and the CPU time between, in nanoseconds.
    used: tuple[int, int, int]
    #: When it was submitted, by the same clock, and its thread's native id; both -1 if that was not recorded.
    handed: tuple[int, int] = (-1, -1)
    #: Whether the event loop has heard of the task's end.
    claimed = False

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        # Where it travels nobody needs to have this package.
        return int, (int(self),)


class TaskMeter:
    """The CPU and wall time of each task of one worker on one executor, measured inside the task's thread.

    Works on every platform and for seceding tasks.
    """

    def __init__(self, failed: Callable[[Exception], object]) -> None:
        #: Told, in the task's thread, of a failure of the measuring itself; the task does not notice.
        self._failed = failed
        #: Thread ident to the (monotonic, CPU) nanoseconds at which its present task began.
        self.live: dict[int, tuple[int, int]] = {}
        #: Whether each run also notes when it was submitted, and on which thread it ran.
        self.recording = False
        #: From when to when each thread worked for one task; None while nobody wants to know.
        self.windows: deque[TaskWindow] | None = None
        #: Called in the thread before each task; what it gives is called after it. Neither may raise.
        self.around: Callable[[TaskId], Callable[[], object]] | None = None
        #: Called before the next task is submitted; None while whoever wants to know is awake. It must not raise.
        self.wake: Callable[[], object] | None = None
        #: Runs that are done, some of them claimed since; bounded, should some never be.
        self._done: deque[ThreadRun] = deque(maxlen=10_000)

    def submit(self, submit: Callable[..., Future[Any]], task: Callable[[], Any]) -> Future[Any]:
        """Have a task run, metered, by an executor's own ``submit``."""
        submitted = time.monotonic_ns() if self.recording else -1
        if self.wake is not None:
            self.wake()
        if self.around is not None:
            task = self._surrounded(task, self.around)
        return submit(self._run, task, submitted)

    def unclaimed(self) -> list[ThreadRun]:
        """The runs that are done and that the event loop has not heard of."""
        runs = [self._done.popleft() for _ in range(len(self._done))]
        waiting = [run for run in runs if not run.claimed]
        self._done.extendleft(reversed(waiting))
        return waiting

    def _run(self, task: Callable[[], Any], submitted: int) -> Any:
        try:
            ident = threading.get_ident()
            start = time.monotonic_ns()
            cpu = time.thread_time_ns()
            self.live[ident] = start, cpu
        except Exception as error:
            self._failed(error)
            return task()
        try:
            result = task()
        except BaseException:
            self._note_window(ident, start, time.monotonic_ns())
            self.live.pop(ident, None)
            raise
        try:
            used = time.thread_time_ns() - cpu
            stop = time.monotonic_ns()
            if self.windows is not None:
                self._note_window(ident, start, stop)
            self.live.pop(ident, None)
            # Touch nothing but a task's message.
            if type(result) is dict and result.get("thread") == ident and "op" in result:
                run = ThreadRun(ident)
                run.used = start, stop, used
                if submitted >= 0:
                    run.handed = submitted, threading.get_native_id()
                self._done.append(run)
                result["thread"] = run
        except Exception as error:
            self._failed(error)
        return result

    def _surrounded(
        self, task: Callable[[], Any], around: Callable[[TaskId], Callable[[], object]]
    ) -> Callable[[], Any]:
        def surrounded() -> Any:
            ident = threading.get_ident()
            if ident not in self.live:  # measuring has failed
                return task()
            after = around(TaskId(ident, self.live[ident][0]))
            try:
                return task()
            finally:
                after()

        return surrounded

    def _note_window(self, ident: int, start: int, stop: int) -> None:
        """Before the thread counts as free: whoever looks finds the task in one place at least."""
        windows = self.windows
        if windows is not None:
            windows.append(TaskWindow(TaskId(ident, start), stop))


class ActorTimer:
    """Actor methods, which hold no slot: the wall time of all calls together."""

    def __init__(self) -> None:
        self._spent: deque[int] = deque()
        self._total = 0

    @property
    def spent(self) -> int:
        """Nanoseconds of all calls that have returned; read from one thread only."""
        while self._spent:
            self._total += self._spent.popleft()
        return self._total

    def submit(
        self, submit: Callable[..., Future[Any]], method: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Future[Any]:
        """Have a method run, timed, by an executor's own ``submit``."""
        return submit(self._run, method, arguments)

    def _run(self, method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        start = time.monotonic_ns()
        try:
            return method(*arguments)
        finally:
            self._spent.append(time.monotonic_ns() - start)


def live_used(worker: Any, meters: Iterable[TaskMeter]) -> dict[Any, tuple[int, int]]:
    """(CPU, wall) nanoseconds in their threads so far, of the tasks that are at work now, by key.

    The clock of a thread that has ended crashes the process when it is read. So it is read only
    under ``worker.active_threads_lock`` and for a thread that is in ``worker.active_threads``: it
    cannot leave its task while the lock is held. Where the platform has no clocks of other threads,
    CPU is 0 until the task ends.
    """
    get_clock = getattr(time, "pthread_getcpuclockid", None)
    used = {}
    with worker.active_threads_lock:
        for ident, key in worker.active_threads.items():
            began = next((meter.live[ident] for meter in meters if ident in meter.live), None)
            if began is not None:
                cpu = time.clock_gettime_ns(get_clock(ident)) - began[1] if get_clock else 0
                used[key] = max(0, cpu), time.monotonic_ns() - began[0]
    return used
