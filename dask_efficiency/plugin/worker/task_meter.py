"""TaskMeter: what each task of a worker used in its thread, measured in that thread."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial, wraps
from threading import get_ident, get_native_id
from time import monotonic_ns, thread_time_ns
from typing import Any

from distributed import Reschedule
from distributed import worker as upstream

from dask_efficiency.accounts.worker.log import Run
from dask_efficiency.gpu.records import TaskId, TaskWindow
from dask_efficiency.plugin.patches import RUN_ACTOR, RUN_TASK, Replacements
from dask_efficiency.show.log import logger

#: Runs that the event loop has not heard of; beyond, the oldest go, should some never be asked for.
MAX_UNCLAIMED = 10_000


class TaskMeter:
    """The CPU and wall time of each task of one worker, and the wall time of its actors' methods.

    Works on every platform, on users' own thread pools, and for seceding tasks. It is called by the functions of
    upstream's that run tasks in threads, of which each process has one: they find the worker by its ``active_threads``,
    which upstream hands to each of its tasks.
    """

    def __init__(self, active_threads: dict[int, Any]) -> None:
        self._table = active_threads
        #: Thread ident to the (monotonic, CPU) nanoseconds at which its present task began, and the task's key.
        self.live: dict[int, tuple[int, int, Any]] = {}
        #: The runs that are done and that the event loop has not heard of, by key.
        self.done: dict[Any, Run] = {}
        #: Of these, the ones that a P2P shuffle stopped, to have them run where their data is.
        self.stopped_by_shuffle: set[Any] = set()
        #: Whether each run also notes on which thread it ran.
        self.recording = False
        #: From when to when each thread worked for one task; None while nobody wants to know.
        self.windows: deque[TaskWindow] | None = None
        #: Called in the thread before each task, with its key; what it gives, if anything, is called after it.
        self.around: Callable[[TaskId, Any], Callable[[], object] | None] | None = None
        #: Called in the next task's thread before it; None while whoever wants to know is awake.
        self.wake: Callable[[], object] | None = None
        self._methods: deque[int] = deque()
        self._in_methods = 0

    @property
    def attached(self) -> bool:
        """Whether it meters."""
        return _meters.get(id(self._table)) is self

    def attach(self) -> None:
        """Meter this worker's tasks from now on; nothing is done where that is not possible."""
        global _meters
        with _lock:
            if not _meters:
                meters: dict[int, TaskMeter] = {}
                if not _install(meters):
                    return
                _meters = meters
            _meters[id(self._table)] = self

    def detach(self) -> bool:
        """Meter them no more; after the last worker of the process, upstream is as it was. Safe to call twice.

        Gives whether it metered until now.
        """
        with _lock:
            attached = self.attached
            if attached:
                del _meters[id(self._table)]
            if not _meters:
                _replacements.put_back()
        return attached

    def fail(self, error: Exception) -> None:
        """Log once and meter no more; the task goes on."""
        if self.detach():  # of several threads that fail at once, one says so
            logger.error("dask_efficiency measures the CPU time of tasks no more", exc_info=error)
        self.live.clear()

    @property
    def in_methods(self) -> int:
        """Nanoseconds in methods of actors that have returned; read from one thread only."""
        while self._methods:
            self._in_methods += self._methods.popleft()
        return self._in_methods


#: By the identity of their workers' tables. Another mapping each time that upstream's functions are replaced: who put
#: something over ours goes on calling them, and they must not measure a task twice.
_meters: dict[int, TaskMeter] = {}
_replacements = Replacements()
#: Workers of one process may come and go in several threads.
_lock = threading.Lock()


def _install(meters: dict[int, TaskMeter]) -> bool:
    """Put the functions below in the place of upstream's; False where these are not what we know."""
    try:
        thread_time_ns()
    except Exception as error:
        logger.info("dask_efficiency does not measure the CPU time of tasks: %s: %s", type(error).__name__, error)
        return False
    if not _replacements.put(RUN_TASK, upstream, partial(_metered, meters)):
        logger.info("dask_efficiency does not measure the CPU time of tasks: this version of Dask runs them otherwise")
        return False
    _replacements.put(RUN_ACTOR, upstream, partial(_timed, meters))
    return True


def _metered(meters: dict[int, TaskMeter], original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def run_task(
        task: Any,
        data: Any,
        execution_state: Any,
        key: Any,
        active_threads: Any,
        active_threads_lock: Any,
        time_delay: float,
    ) -> Any:
        meter = meters.get(id(active_threads))
        if meter is None:
            return original(task, data, execution_state, key, active_threads, active_threads_lock, time_delay)
        try:
            # Read once: other threads may set them to None.
            wake, around, after = meter.wake, meter.around, None
            if wake is not None:
                meter.wake = None
                wake()
            ident = get_ident()
            start = monotonic_ns()
            cpu = thread_time_ns()
            meter.live[ident] = start, cpu, key
            if around is not None:
                after = around(TaskId(ident, start), key)
        except Exception as error:
            meter.fail(error)
            return original(task, data, execution_state, key, active_threads, active_threads_lock, time_delay)
        message = None
        try:
            message = original(task, data, execution_state, key, active_threads, active_threads_lock, time_delay)
            return message
        finally:
            try:
                if message is not None and message.get("op") == "task-erred" and _stopped_by_shuffle(message):
                    if len(meter.stopped_by_shuffle) >= MAX_UNCLAIMED:
                        meter.stopped_by_shuffle.clear()
                    meter.stopped_by_shuffle.add(key)
                if after is not None:
                    after()
                cpu = thread_time_ns() - cpu
                stop = monotonic_ns()
                windows = meter.windows
                # Before the thread counts as free: whoever looks finds the task in one place at least.
                if windows is not None:
                    windows.append(TaskWindow(TaskId(ident, start), stop, key))
                meter.done[key] = start, stop, cpu, ident, get_native_id() if meter.recording else -1
                meter.live.pop(ident, None)
            except Exception as error:
                meter.fail(error)

    return run_task


def _stopped_by_shuffle(message: Any) -> bool:
    """Whether the protocol of a P2P shuffle, and not the user, raised Reschedule."""
    error = message.get("actual_exception")
    if not isinstance(error, Reschedule) or error.__traceback__ is None:
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("distributed.shuffle.")


def _timed(meters: dict[int, TaskMeter], original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def run_actor(
        func: Any, args: Any, kwargs: Any, execution_state: Any, key: Any, active_threads: Any, active_threads_lock: Any
    ) -> Any:
        meter = meters.get(id(active_threads))
        start = monotonic_ns()
        try:
            return original(func, args, kwargs, execution_state, key, active_threads, active_threads_lock)
        finally:
            if meter is not None:
                meter._methods.append(monotonic_ns() - start)

    return run_actor


def live_used(worker: Any, meter: TaskMeter) -> dict[Any, tuple[int, int]]:
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
            began = meter.live.get(ident)
            if began is not None:
                cpu = time.clock_gettime_ns(get_clock(ident)) - began[1] if get_clock else 0
                used[key] = max(0, cpu), monotonic_ns() - began[0]
    return used
