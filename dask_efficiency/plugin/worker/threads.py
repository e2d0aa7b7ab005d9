"""TaskThreads: measures each task of a worker in the thread that runs it."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial, wraps
from threading import get_ident, get_native_id
from time import monotonic_ns, thread_time_ns
from typing import Any, Literal, TypeAlias

from distributed import Reschedule, Worker
from distributed import worker as upstream
from distributed.worker_state_machine import TaskState

from dask_efficiency.accounts.memory import Worked
from dask_efficiency.accounts.worker.balance import Used
from dask_efficiency.accounts.worker.log import Run
from dask_efficiency.accounts.worker.reservations import SlotReservation
from dask_efficiency.gpu.meter import TaskId, TaskWindow
from dask_efficiency.plugin.patches import RUN_ACTOR, RUN_TASK, Replacements
from dask_efficiency.plugin.worker.process_memory import MIN_TASK_NS, PROCESS_MEMORY
from dask_efficiency.show.log import logger

#: Runs that the event loop has not claimed; beyond, the oldest go, as some may never be claimed.
MAX_UNCLAIMED = 10_000
#: Tasks that ended between two reads of the GPU watch; beyond, the oldest go.
MAX_WINDOWS = 100_000
#: Function called in a task's thread before it, with its key; a function that it returns is called there after it.
Around: TypeAlias = Callable[[TaskId, Any], Callable[[], object] | None]


class TaskThreads:
    """Measures CPU and wall time of each task of one worker, and wall time of its actors' methods, in their threads.

    Works on every platform, on users' thread pools, and for seceding tasks. Upstream's functions that run tasks in
    threads exist once in a process; the wrappers find the worker's meter by its ``active_threads``, which upstream
    passes along with each task.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._table = worker.active_threads
        #: Start of the present task by thread ident, as (monotonic, CPU) nanoseconds, and its key.
        self.live: dict[int, tuple[int, int, Any]] = {}
        #: Ended runs that the event loop has not claimed, by key.
        self.done: dict[Any, Run] = {}
        #: Their memory, of those that were measured, while it is.
        self.worked: dict[Any, Worked] = {}
        self.measures_memory = False
        #: Keys of runs that a P2P shuffle stopped, to run them where their data is.
        self.stopped_by_shuffle: set[Any] = set()
        #: True if each run also notes its native thread id.
        self.recording = False
        #: Windows of ended tasks; None while nobody reads them.
        self.ended: deque[TaskWindow] | None = None
        #: Called in the thread of the next task, before it; None while the sampler is awake.
        self.wake: Callable[[], object] | None = None
        #: Nanoseconds in tasks whose CPU time cannot be measured: coroutines, process pools.
        self.not_measured = 0
        #: CPU nanoseconds of ended tasks, as their accounts count them.
        self.claimed = 0
        self.around: Around | None = None
        self._around: dict[str, Around | None] = {"profiles": None, "gpu": None}
        self._placing = threading.Lock()
        self._methods: deque[int] = deque()
        self._in_methods = 0

    @property
    def attached(self) -> bool:
        """True while it measures."""
        return _meters.get(id(self._table)) is self

    def attach(self) -> None:
        """Measure this worker's tasks from now on; no-op if that is not possible."""
        global _meters
        with _lock:
            if not _meters:
                meters: dict[int, TaskThreads] = {}
                if not _install(meters):
                    return
                _meters = meters
            _meters[id(self._table)] = self

    def detach(self) -> bool:
        """Measure no more; after the last worker of the process, upstream is as it was. True if it did until now."""
        self.unwatch()
        with _lock:
            attached = self.attached
            if attached:
                del _meters[id(self._table)]
            if not _meters:
                _replacements.put_back()
        return attached

    def fail(self, error: Exception) -> None:
        """Log once and measure no more; the task goes on."""
        if self.detach():  # of several threads that fail at once, one logs
            logger.error("dask_efficiency no longer measures the CPU time of tasks", exc_info=error)
        self.live.clear()

    @property
    def in_methods(self) -> int:
        """Nanoseconds in methods of actors that have returned; read from one thread only."""
        while self._methods:
            self._in_methods += self._methods.popleft()
        return self._in_methods

    def native_ids(self) -> set[int]:
        """Native ids of the threads that run tasks, as far as executors have thread lists."""
        pools = (
            getattr(executor, "_threads", ()) for executor in self._worker.executors.values() if _is_threads(executor)
        )
        return {thread.native_id for pool in pools for thread in list(pool) if thread.native_id is not None}

    def cpu(self) -> int | None:
        """CPU nanoseconds in all tasks so far, of any outcome; None while a thread begins or ends a task.

        Exact once ended tasks are finalized.
        """
        for key in list(self.done)[:-MAX_UNCLAIMED]:
            self.claimed += self.done.pop(key)[2]
            self.worked.pop(key, None)
        live, used = self.live.copy(), self.live_used()
        done = self.done.copy()
        for start, _, key in live.values():
            if key in done and done[key][0] == start:
                used.pop(key, None)  # it ended just now
            elif key not in used:
                return None
        return self.claimed + sum(run[2] for run in done.values()) + sum(cpu for cpu, _ in used.values())

    def windows(self) -> list[TaskWindow]:
        """Windows of running tasks (``stop`` is -1), then of those that ended since the last call; for one reader."""
        ended = self.ended
        if ended is None:
            ended = self.ended = deque(maxlen=MAX_WINDOWS)
        live = list(self.live.items())
        running = [TaskWindow(TaskId(ident, start), -1, key) for ident, (start, _, key) in live]
        # Ended ones last: a task that ends in between is in both lists, and none is missing.
        return running + [ended.popleft() for _ in range(len(ended))]

    def unwatch(self) -> None:
        """Note no windows any more, and call nothing of the GPU watch around tasks."""
        self.ended = None
        self.surround("gpu", None)

    def surround(self, owner: Literal["profiles", "gpu"], around: Around | None) -> None:
        """Call a function around each task, until it is None; that of the profiles first, and its result last."""
        with self._placing:  # from the event loop, the watch's thread and threads of tasks
            self._around[owner] = around
            profiles, gpu = self._around["profiles"], self._around["gpu"]
            both = None if profiles is None or gpu is None else partial(_nested, profiles, gpu)
            self.around = both or profiles or gpu

    def measured_upstream(self, key: Any) -> int:
        """Nanoseconds, by upstream, of a task that ends now and ran in no metered thread, such as a coroutine; or 0."""
        log = self._worker.state.stimulus_log
        event = log[-1] if log else None
        start, stop = getattr(event, "start", None), getattr(event, "stop", None)
        if start is None or stop is None or getattr(event, "key", None) != key:
            return 0
        return max(0, round((float(stop) - float(start)) * 1e9))

    def elsewhere(self, start: int, wall: int) -> Run:
        """Count such a task from the start of its slot; its CPU time is unknown."""
        self.not_measured += wall
        return start, start + wall, 0, 0, -1

    def live_used(self) -> dict[Any, tuple[int, int]]:
        """(CPU, wall) nanoseconds so far of the tasks at work, in their threads, by key.

        Reading the clock of a thread that has ended crashes the process. So it is read only under
        ``worker.active_threads_lock`` and for a thread in ``worker.active_threads``: it cannot leave its task while
        the lock is held. On platforms without clocks of other threads, CPU is 0 until the task ends.
        """
        get_clock = getattr(time, "pthread_getcpuclockid", None)
        used = {}
        with self._worker.active_threads_lock:
            for ident, key in self._worker.active_threads.items():
                began = self.live.get(ident)
                if began is not None:
                    cpu = time.clock_gettime_ns(get_clock(ident)) - began[1] if get_clock else 0
                    used[key] = max(0, cpu), monotonic_ns() - began[0]
        return used

    def waiting(self) -> int:
        """Number of tasks that hold slots while their threads are not at work: they wait for the event loop."""
        at_work = len(self.live) - len(self._worker.state.long_running)
        executing = self._worker.state.executing
        return len(executing) - max(0, at_work) - sum(map(self._measured_elsewhere, executing))

    def so_far(
        self,
        held: Mapping[object, SlotReservation],
        spilled: Callable[[int, int], int],
        library: Callable[[SlotReservation, int], int],
    ) -> dict[object, Used]:
        """Known use so far of the tasks that hold slots, by key.

        ``spilled`` gives the nanoseconds between two instants in which the event loop spilled, ``library`` the part of
        a task's waiting in which threads of libraries computed.
        """
        executing = self._worker.state.executing
        if not executing:
            return {}
        at = time.monotonic_ns()
        # Coroutines and process pools: no metered thread to read, but at work since their start.
        now = time.time()
        used: dict[object, Used] = {
            ts.key: Used(0, max(0, round((now - ts.start_time) * 1e9)))
            for ts in executing
            if ts.start_time is not None and self._measured_elsewhere(ts)
        }
        for key, (cpu, wall) in self.live_used().items():
            reservation = held.get(key)
            if reservation is None:
                used[key] = Used(cpu, wall)
            else:
                computed = library(reservation, wall - cpu)
                used[key] = Used(cpu, wall, library=computed, spill=spilled(reservation.start, at - wall))
        done = self.done
        for key, reservation in held.items():
            if key in used:
                continue
            run = done.get(key)
            if run is None:  # its thread has not begun
                used[key] = Used(0, 0, spill=spilled(reservation.start, at))
            else:  # its thread is done, but the event loop does not know it yet
                start, stop, cpu, _, _ = run
                used[key] = Used(cpu, stop - start, spill=spilled(reservation.start, start) + spilled(stop, at))
        return used

    def _measured_elsewhere(self, ts: TaskState) -> bool:
        if not self.attached or getattr(ts.run_spec, "is_coro", False):
            return True
        return not _is_threads(self._worker.executors.get((ts.annotations or {}).get("executor", "default")))


#: By identity of their workers' tables. A new mapping each time upstream's functions are replaced: whoever wrapped our
#: wrappers goes on calling the old ones, and these must not measure a task twice.
_meters: dict[int, TaskThreads] = {}
_replacements = Replacements()
#: Workers of one process may come and go in several threads.
_lock = threading.Lock()


def _install(meters: dict[int, TaskThreads]) -> bool:
    """Replace upstream's functions by the wrappers below; False if upstream's are not the expected ones."""
    try:
        thread_time_ns()
    except Exception as error:
        logger.info("dask_efficiency does not measure the CPU time of tasks: %s: %s", type(error).__name__, error)
        return False
    if not _replacements.put(RUN_TASK, upstream, partial(_metered, meters)):
        logger.info(
            "dask_efficiency does not measure the CPU time of tasks: this version of Dask runs them in another way"
        )
        return False
    _replacements.put(RUN_ACTOR, upstream, partial(_timed, meters))
    return True


def _metered(meters: dict[int, TaskThreads], original: Callable[..., Any]) -> Callable[..., Any]:
    memory = PROCESS_MEMORY

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
            wake, around, after, begun = meter.wake, meter.around, None, None
            if wake is not None:
                meter.wake = None
                wake()
            ident = get_ident()
            start = monotonic_ns()
            if start >= memory.measures_from and meter.measures_memory:
                begun = memory.begin(len(meter.live))
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
                if stop - start < MIN_TASK_NS:
                    memory.measures_from = stop + MIN_TASK_NS
                else:
                    memory.measures_from = 0
                    worked = None if begun is None else memory.end(begun, len(meter.live) - 1)
                    if worked is not None:
                        meter.worked[key] = worked
                memory.ended = stop
                windows = meter.ended
                # Before the thread counts as free: readers find the task in at least one place.
                if windows is not None:
                    windows.append(TaskWindow(TaskId(ident, start), stop, key))
                meter.done[key] = start, stop, cpu, ident, get_native_id() if meter.recording else -1
                meter.live.pop(ident, None)
            except Exception as error:
                meter.fail(error)

    return run_task


def _stopped_by_shuffle(message: Any) -> bool:
    """True if the protocol of a P2P shuffle raised Reschedule, and not the user."""
    error = message.get("actual_exception")
    if not isinstance(error, Reschedule) or error.__traceback__ is None:
        return False
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("distributed.shuffle.")


def _timed(meters: dict[int, TaskThreads], original: Callable[..., Any]) -> Callable[..., Any]:
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
    """True if tasks run in threads of this executor; upstream too checks the name of the class."""
    return "ThreadPoolExecutor" in str(type(executor))
