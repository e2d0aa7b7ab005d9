"""WaitingSampler: a thread of a worker that samples, a few times a second, why the threads of its tasks wait."""

from __future__ import annotations

import _thread
import asyncio
import platform
import random
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack, closing, suppress
from functools import partial
from time import monotonic_ns, thread_time_ns
from typing import Any

from distributed import Worker

from dask_efficiency.accounts.details import WindowDetails
from dask_efficiency.accounts.processors import cores
from dask_efficiency.accounts.worker.log import prefix_of, span_of
from dask_efficiency.accounts.worker.waiting import Key, WaitingSums
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.loop_blocks import GIL_TURNS, LoopBlocks
from dask_efficiency.plugin.messages import MESSAGES_HERE
from dask_efficiency.plugin.processors import Throttling, own_processors
from dask_efficiency.plugin.stacks import Stacks, has_gil
from dask_efficiency.plugin.thread_clocks import HeldReader, ThreadClocks, ThreadFiles
from dask_efficiency.plugin.worker.file_reads import FileLooks, FileWindows
from dask_efficiency.plugin.worker.look import Look
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.plugin.worker.wait_states import CALLS, WaitStates, find_gil
from dask_efficiency.plugin.worker.watched_threads import LibraryThreads, WatchedThreads
from dask_efficiency.plugin.worker.window_details import Sample, SampleWindows

#: Nanoseconds between two looks, on average, at least: twenty looks a second show tasks of a second well.
MIN_INTERVAL_NS = 50_000_000
#: Nanoseconds between two looks, on average, at most, however long looks take.
MAX_INTERVAL_NS = 1_000_000_000
#: Share of a core that the looks may take; with the work on the event loop below the 0.3 % that the option promises.
MAX_SHARE = 0.0022
#: Nanoseconds below which a process does not count as stopped: a busy machine wakes threads up late.
MIN_STOPPED_NS = 50_000_000
#: Seconds after which an asleep sampler checks for tasks by itself.
ASLEEP_SECONDS = 10.0
#: Samples on their way to the event loop; beyond, the oldest go. A guess, to bound memory.
MAX_SAMPLES = 100_000


class WaitingSampler:
    """Samples why the threads of a worker's tasks wait; made and called on the event loop. A failure ends it."""

    def __init__(self, worker: Worker, task_threads: TaskThreads, files: FileWindows) -> None:
        self._guard = Guard("the sampler", "dask_efficiency no longer samples why tasks of this worker wait")
        what = "dask_efficiency no longer finds files that tasks of this worker read again"
        self._files_guard = Guard("looking for open files", what)
        self._not_here: str | None = None
        #: As of the last :meth:`tick_now`.
        self.sums = WaitingSums()
        self._worker, self._task_threads = worker, task_threads
        self._windows = SampleWindows()
        self._loop_ident, self._loop_native_id = threading.get_ident(), threading.get_native_id()
        self._files = files
        self._file_looks: FileLooks | None = None
        self._added: deque[tuple[Key, str, int]] = deque(maxlen=MAX_SAMPLES)
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        #: Held by the thread that looks or reads: the sampler's, or the event loop's.
        self._turn = threading.Lock()
        self._alarm = _thread.allocate_lock()
        self._alarm.acquire()
        self._closing = False
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._look: Look | None = None
        self._blocks: LoopBlocks | None = None
        self._spent = 0
        self._spent_on_loop = 0
        #: Smoothed CPU nanoseconds of a look.
        self._cost = MIN_INTERVAL_NS * MAX_SHARE
        self._random = random.Random()

    @property
    def off(self) -> str | None:
        """Reason why it does not sample; None while it does, or has not been started."""
        return self._not_here or self._guard.off

    @property
    def spent(self) -> int:
        """CPU nanoseconds of the sampler itself so far, in its thread and on the event loop."""
        return self._spent + self._spent_on_loop

    def go_on(self, former: WaitingSampler) -> None:
        """Take over the sums and open windows of a sampler that has stopped."""
        former._collect()
        self.sums, self._windows = former.sums, former._windows

    def start(self) -> None:
        """Begin; called once."""
        self._not_here = self._guard(why_not)
        if self.off is None:
            self._thread = threading.Thread(target=self._run, name="dask-efficiency-waiting", daemon=True)
            self._guard(self._thread.start)

    def stop(self) -> None:
        """End, without waiting for the thread; safe to call twice."""
        self._closing = True
        _release(self._alarm)

    def tick_now(self, *, edge: bool = False) -> None:
        """Bring :attr:`sums` up to now, with the samples, and the certain waits of threads that still wait.

        It takes no sample: the event loop has the GIL now, so every other thread would seem to wait for it. At the
        ``edge`` of a window, time without a witness must not go to a later one.
        """
        began = thread_time_ns()
        try:
            look = self._look
            if look is not None and self.off is None and not self._closing and self._turn.acquire(blocking=False):
                try:
                    look.go_on(monotonic_ns())
                    look.give_up(every=edge)
                    if edge and self._blocks is not None:
                        self._blocks.tell()
                finally:
                    self._turn.release()
            self._collect()
        except Exception as error:
            self._guard.fail(error)
        self._spent_on_loop += thread_time_ns() - began

    def open_window(self, window_id: str) -> None:
        """Begin to keep stacks under this id."""
        self.tick_now(edge=True)
        self._files.open_window(window_id)
        self._windows.open(window_id)
        if self._look is not None:
            self._look.stacks_wanted = True
            _release(self._alarm)  # it may be asleep for long

    def close_window(self, window_id: str) -> WindowDetails | None:
        """Samples of a window, from :meth:`SampleWindows.close`; None if no such window is open."""
        self.tick_now(edge=True)
        closed = self._windows.close(window_id)
        if self._look is not None:
            self._look.stacks_wanted = bool(self._windows)
        return closed

    def _collect(self) -> None:
        """Take over the samples."""
        for key, cause, ns in _drained(self._added):
            self.sums.add(key, cause, ns)
        for sample in _drained(self._samples):
            self._windows.add(sample)
        if self.off is not None and not self._stopped:
            self._stopped = True
            self.sums.stop()

    def _run(self) -> None:
        opened = ExitStack()
        try:
            reader = opened.enter_context(closing(HeldReader()))
            own = opened.enter_context(closing(ThreadFiles(reader, threading.get_native_id())))
            threads = opened.enter_context(closing(WatchedThreads(reader, self._worker.executors)))
            look = Look(
                threads,
                WaitStates(platform.machine(), reader, is_gil=find_gil(reader)),
                opened.enter_context(closing(Throttling.own())),
                opened.enter_context(closing(LibraryThreads(reader))),
                Stacks() if has_gil() else None,  # without a GIL, frames of others change while they are walked
                running=partial(_running, self._worker, self._task_threads),
                task_of=partial(_task_of, self._worker, self._task_threads),
                loop_ident=self._loop_ident,
                cores=cores([own_processors()]),
                nthreads=partial(getattr, self._worker.state, "nthreads"),
                add=self._added.append,
                sample=self._samples.append,
            )
            with suppress(OSError):  # the kernel does not count what is read
                of_files = FileLooks(reader, self._loop_native_id, self._worker.local_directory, self._files.add)
                self._file_looks = opened.enter_context(closing(of_files))
            look.begin(monotonic_ns())
            self._look = look
            samples = self._samples
            self._blocks = LoopBlocks(
                self._worker,
                look.look_at_loop,
                lambda block: samples.append(("loop_blocks", block, 0)),
                partial(MESSAGES_HERE.during, self._loop_ident),
            )
            opened.callback(self._blocks.close)
            self._sample(look, self._blocks, threads, own)
        except Exception as error:
            self._guard.fail(error)
        finally:
            with self._turn:
                self._look = None
                opened.close()

    def _sample(self, look: Look, blocks: LoopBlocks, threads: WatchedThreads, own: ThreadFiles) -> None:
        """Look again and again, until :meth:`stop`."""
        before, faults, at = own.clocks() or ThreadClocks(0, 0, 0), 0, monotonic_ns()
        loop: asyncio.AbstractEventLoop = self._worker.io_loop.asyncio_loop  # type: ignore[attr-defined]
        # A worker may be left open when its event loop is closed.
        while not self._closing and not loop.is_closed():
            look.stacks_wanted = bool(self._windows)
            began = thread_time_ns()
            interval = min(MAX_INTERVAL_NS, max(MIN_INTERVAL_NS, round(self._cost / MAX_SHARE)))
            if self._is_idle():
                # Imports of an event loop before the first task are of interest too.
                wanted = look.stacks_wanted
                self._sleep(interval / 1e9 if wanted else ASLEEP_SECONDS)
                with self._turn:
                    last, at, clocks = at, monotonic_ns(), own.clocks() or before
                    is_late = wanted and clocks.turns - before.turns >= GIL_TURNS
                    look.begin(at, gil_wait=max(0, at - last - interval) if is_late else 0)
                    before = clocks
                    blocks.look(look.stacks_wanted)
                continue
            # Work as regular as the looks would always be seen at the same line.
            interval = round(interval * (0.5 + self._random.random()))
            due = monotonic_ns() + interval
            if self._alarm.acquire(timeout=interval / 1e9):
                continue
            last, at = at, monotonic_ns()
            with self._turn:
                if self._closing:
                    return
                threads.glimpse()  # as soon as the GIL is there
                clocks = own.clocks() or before
                late, turns = max(0, at - due - (clocks.core - before.core)), clocks.turns - before.turns
                faulted, faults = faults, _page_faults()
                stopped = stood_still(late, turns, faults - faulted)
                is_late = turns >= GIL_TURNS and not stopped
                look.sample(at, gil_wait=at - last - interval if is_late else late - stopped, stopped=stopped)
                before = clocks
                blocks.look(look.stacks_wanted)
            look.read_files()
            if look.stacks_wanted and self._file_looks is not None:
                self._files_guard(self._file_looks.look, at, self._prefixes)
            took = thread_time_ns() - began
            # One long look, as the first ones are, must not delay the next for long.
            self._cost += 0.4 * (min(took, 3 * self._cost) - self._cost)
            self._spent += took

    def _prefixes(self) -> list[str]:
        """Prefix of the task of each thread that runs one."""
        return [key[1] for _, _, key in _running(self._worker, self._task_threads) if key is not None]

    def _is_idle(self) -> bool:
        return not self._worker.state.executing and not self._task_threads.live

    def _sleep(self, seconds: float) -> None:
        """Sleep until a task begins, at most this long."""
        self._task_threads.wake = partial(_release, self._alarm)
        # A task may have arrived meanwhile: the worker's state has it before it begins.
        if self._is_idle() and not self._closing:
            self._alarm.acquire(timeout=seconds)
        self._task_threads.wake = None


def _release(alarm: _thread.LockType) -> None:
    """Wake the sampler up; also called in the thread of the first task. Must not raise."""
    with suppress(RuntimeError):  # it is awake
        alarm.release()


def _running(worker: Worker, threads: TaskThreads) -> list[tuple[int, int, Key | None]]:
    """Idents of the threads that run tasks, starts of the tasks, and span and prefix of those that hold a slot."""
    found: list[tuple[int, int, Key | None]] = []
    state, keys = worker.state, worker.active_threads
    for ident, (start, _, _) in list(threads.live.items()):
        ts = state.tasks.get(keys.get(ident))  # type: ignore[arg-type]  # None is no key
        key = (span_of(ts.span_id), prefix_of(ts.prefix)) if ts is not None and ts in state.executing else None
        found.append((ident, start, key))
    return found


def _task_of(worker: Worker, threads: TaskThreads, ident: int) -> tuple[str, bool] | None:
    """Prefix of the task that a thread runs, and True; of the one that it has just ended, and False; or None."""
    key, runs = worker.active_threads.get(ident), True
    if key is None:
        ended = [key for key, (_, _, _, of, _) in list(threads.done.items()) if of == ident]
        key, runs = ended[-1] if ended else None, False
    ts = worker.state.tasks.get(key)  # type: ignore[arg-type]  # None is no key
    return None if ts is None else (prefix_of(ts.prefix), runs)


def stood_still(late: int, turns: int, faults: int) -> int:
    """Nanoseconds for which the process was stopped, within the delay of one of its threads.

    A thread that waits for the GIL wakes up each switch interval; in a stopped process nothing wakes it up. ``late`` is
    its delay of waking up, or of getting the GIL, without waits for a core; meanwhile it was given a core ``turns``
    times. If it had page ``faults``, memory was the cause.
    """
    if faults:
        return 0
    still = late - round(turns * 2e9 * sys.getswitchinterval())
    return still if still >= MIN_STOPPED_NS else 0


def _page_faults() -> int:
    """Pages that were read from a disk for the calling thread."""
    import resource  # not on Windows, where no thread is sampled

    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt


def why_not() -> str | None:
    """Reason why threads cannot be sampled on this system; None if they can."""
    if sys.platform != "linux":
        return "no /proc/self/task/*/syscall: not Linux"
    if sys.maxsize < 1 << 32:
        return "the system calls of 32-bit programs are not known"
    if platform.machine() not in CALLS:
        return f"the system calls of {platform.machine()} are not known"
    try:
        with closing(HeldReader()) as reader, closing(ThreadFiles(reader, threading.get_native_id())) as own:
            clocks, syscall = own.clocks(), own.syscall()
            if clocks is not None and not clocks.cpu:  # of a new thread it counts from its first switch on
                time.sleep(0.001)
                clocks = own.clocks()
    except (OSError, AttributeError, TypeError) as error:
        return f"no /proc/self/task/*/syscall: {type(error).__name__}: {error}"[:500]
    if clocks is None or not clocks.cpu:
        return "no /proc/self/task/*/schedstat: the kernel does not count"
    if not syscall:
        return "no /proc/self/task/*/syscall: the kernel does not say"
    return None


def _drained(queue: deque[Any]) -> list[Any]:
    return [queue.popleft() for _ in range(len(queue))]
