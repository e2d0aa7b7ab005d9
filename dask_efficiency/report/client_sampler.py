"""ClientSampler: a thread that samples, a few times a second, what a client does while reports are open.

Each look finds the thread that opened the block, or its asyncio task, in one activity, at one stack. A sample stands
for the time since the one before it, so that samples tile the window and their sums are the wall clock. A thread that
waits for the client's event loop does what the loop does for it: pickling, unpickling. One that waits for another
thread of the user's, which waits for Dask, does what that one does.
"""

from __future__ import annotations

import asyncio
import os
import platform
import random
import re
import sys
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import lru_cache
from itertools import islice
from time import monotonic_ns, thread_time_ns
from types import FrameType
from typing import Any

import dask
import distributed

from dask_efficiency.accounts.cluster.windows import Interval
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.lines import (
    IMPORT,
    MAX_DEPTH,
    MAX_ROWS,
    Frame,
    Stack,
    blamed,
    has_nothing_to_do,
    is_import,
    is_the_users,
)
from dask_efficiency.plugin import names
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.stacks import MAX_WALKED, Stacks, folder_of, frames_of_others, has_gil
from dask_efficiency.plugin.thread_clocks import HeldReader, ThreadClocks, ThreadFiles, cpu_clock
from dask_efficiency.plugin.worker.look import LONG_HOLD_NS
from dask_efficiency.plugin.worker.sampler import MAX_INTERVAL_NS, MAX_SHARE, MIN_INTERVAL_NS, why_not
from dask_efficiency.plugin.worker.wait_states import GIL, RUNNING, UNKNOWN, WaitStates, find_gil
from dask_efficiency.plugin.worker.watched_threads import DASK_NAMES
from dask_efficiency.report import client_watch, making
from dask_efficiency.report.client_watch import has_outstanding
from dask_efficiency.report.values import ClientRow
from dask_efficiency.show.finding import MOST

#: Samples of a window: three megabytes, an hour and a half. Beyond, each second one goes, and stands for less.
MAX_SAMPLES = 1 << 17
#: Frames kept outside of the user's innermost line. A guess: they tell which of its callers called.
MAX_CALLERS = 8
#: Functions kept inside of the one that tells the activity. A guess: by them recipes know what a call of Dask does.
MAX_CALLED = 12
#: Other threads that are looked at while the user's waits for one. A guess, to bound the cost of a look.
MAX_OTHERS = 8

COMPUTE, LOCK, AWAIT, OWN = "compute", "lock", "await", "own"
BUILD, LOCAL, OPTIMIZE, HASH, PICKLE, UNPICKLE = "build", "local", "optimize", "hash", "pickle", "unpickle"
WAIT, RECEIVE, SEND, CALL, RELEASE = "wait", "receive", "send", "call", "release"

_DASK, _DISTRIBUTED = (fitting(folder_of(module)) for module in (dask, distributed))
#: Files of this package that pass calls on; its demo is a script like any other.
_OURS = fitting(folder_of(names)), *(fitting(str(module.__file__)) for module in (client_watch, making))
#: What a function of Dask does, by its name; the outermost that is listed counts. Later ones are parts of it.
_FUNCTIONS = tuple(
    (activity, re.compile(rf"(?:^|[._])(?:{functions})$"))
    for activity, functions in (
        (OPTIMIZE, r"(?:__dask_)?optimize(?:_\w+|__)?|simplify\w*|lower_\w+|fuse\w*|cull|collections_to_\w+"),
        (HASH, r"_?tokenize\w*|_?normalize_\w+|__dask_tokenize__|hash_buffer\w*"),
        (UNPICKLE, r"loads|deserialize\w*|from_frames|merge_and_deserialize"),
        (PICKLE, r"dumps|serialize\w*|to_frames"),
        (RELEASE, r"Future\.__del__"),
    )
)
#: Functions that run tasks in threads or processes of the client itself.
_LOCAL = re.compile(r"(?:^|[\\/])(?:local|threaded|multiprocessing)\.py$")
#: Calls that wait for tasks, and those that send data.
_FOR_TASKS = re.compile(r"(?:^|\.)_?(?:gather|get|result|exception|traceback|wait|__a?next__|next_batch|join|acquire)$")
_SYNC = "sync.<locals>.wait"  # for any call
_SENDS = re.compile(r"(?:^|\.)_?(?:scatter|upload_\w+|_upload_\w+)$")
#: Files of a thread that waits for another one; those of servers that share the client's event loop; and ``sleep``.
_WAITING = re.compile(r"[\\/](?:threading|queue|selectors)\.py$")
_SERVERS = re.compile(r"[\\/](?:scheduler|worker|nanny|shuffle[\\/]\w+)\.py$")
#: Files of joblib that wait for what it sent away, and its module that sends it to Dask.
_ON_DASK, _JOBLIB_ON_DASK = re.compile(r"[\\/]joblib[\\/](?:parallel|_dask)\.py$"), "joblib._dask"
_TASKS_FILE = fitting(folder_of(asyncio) + "tasks.py")


@lru_cache(maxsize=4096)
def _kind(frame: Frame) -> str | None:
    """Activity of a frame of Dask's, empty if its name tells none; None for frames of others."""
    if not frame.file.startswith((_DASK, _DISTRIBUTED)):
        return None
    if frame.file.startswith(_DASK) and _LOCAL.search(frame.file):
        return LOCAL
    return next((activity for activity, functions in _FUNCTIONS if functions.search(frame.function)), "")


def activity_of(stack: Stack, *, waits: bool) -> tuple[str, Stack]:
    """Activity of a thread in a call of Dask, and its stack; in the user's own code ``""``.

    The stack goes down to what tells the activity, and has the functions inside of that, each once and without its
    line: what Dask does there by recursion would make each look's stack another one. ``waits`` is true for a thread
    that waits for another one, or a task that awaits something.
    """
    own = [i for i, frame in enumerate(stack) if is_the_users(frame.file)]
    first, last = (own[0], own[-1]) if own else (-1, -1)
    called = next((i for i in range(first + 1, len(stack)) if _kind(stack[i]) is not None), None)
    outermost = max(0, (last if called is None else min(last, called)) + 1 - MAX_CALLERS)
    if is_import(stack) and blamed(stack).function == IMPORT:
        return IMPORT, stack[outermost : last + MAX_DEPTH]
    if called is None:
        return "", stack[outermost : last + MAX_DEPTH]
    found = next((i for i in range(called, len(stack)) if _kind(stack[i])), called)
    activity = _kind(stack[found]) or BUILD
    if waits and activity in (BUILD, UNPICKLE, PICKLE):
        inner = [frame.function for frame in stack[called:] if _kind(frame) is not None and frame.function != _SYNC]
        found = called
        activity = WAIT if any(map(_FOR_TASKS.search, inner)) else SEND if any(map(_SENDS.search, inner)) else CALL
    end = max(found, last) + 1
    # Below the user's own line, or a library's, nothing changes whose line it is.
    inside = dict.fromkeys(frame._replace(line=0) for frame in stack[end:]) if last < found and own else {}
    return activity, (*stack[outermost:end][:MAX_DEPTH], *islice(inside, MAX_CALLED))


class Threads:
    """Threads of this process at one look: their stacks, what their own code waits for, and what they computed."""

    def __init__(self, opened: ExitStack) -> None:
        self._stacks = Stacks()
        self._frames: Mapping[int, FrameType] = {}
        self._found: dict[int, threading.Thread] = {}
        self._reader = self._states = None
        self._files: dict[int, ThreadFiles] = {}
        #: CPU clocks by ident, now and at the look before.
        self._cpu: dict[int, int] = {}
        self._cpu_before: dict[int, int] = {}
        self._own: ThreadFiles | None = None
        self._waited = 0
        if why_not() is None:
            self._reader = opened.enter_context(closing(HeldReader()))
            self._own = opened.enter_context(closing(ThreadFiles(self._reader, threading.get_native_id())))
            self._states = WaitStates(platform.machine(), self._reader, is_gil=find_gil(self._reader))
            opened.callback(self._close)

    def look(self) -> None:
        """Take the frames of all threads; :meth:`forget` gives them back."""
        self._frames = frames_of_others()
        self._found = {each.ident: each for each in threading.enumerate() if each.ident is not None}
        if self._states is not None:
            found = ((ident, each.native_id) for ident, each in self._found.items())
            self._cpu_before, self._cpu = self._cpu, {ident: cpu_clock(native) for ident, native in found if native}

    def forget(self) -> None:
        """Keep no frame, and so no variable, of others."""
        self._frames = {}

    def waited_for_core(self) -> int:
        """Nanoseconds that the sampler itself has waited for a core since the last call."""
        clocks = self._own.clocks() if self._own is not None else None
        before, self._waited = self._waited, (clocks or ThreadClocks(0, 0, 0)).core
        return max(0, self._waited - before)

    def computed(self, *idents: int) -> int:
        """CPU nanoseconds of threads since the look before; 0 where they are not known."""
        cpu, before = self._cpu, self._cpu_before
        return sum(max(0, cpu[ident] - before[ident]) for ident in idents if ident in cpu and ident in before)

    def stack(self, ident: int) -> Stack:
        """Stack of a thread, without our own frames; empty if there is no such thread."""
        return self._without_ours(self._stacks.whole(self._frames.get(ident)))

    def stack_of(self, frames: Iterable[FrameType]) -> Stack:
        """Stack of the frames of coroutines that await each other, from the outermost inwards."""
        return self._without_ours(self._stacks.of(frames))

    def _without_ours(self, stack: Stack) -> Stack:
        return tuple(frame for frame in stack if not frame.file.startswith(_OURS))

    def state(self, ident: int) -> str:
        """RUNNING, or what a thread waits for; UNKNOWN where the system does not say."""
        thread, files = self._found.get(ident), self._files.get(ident)
        if self._reader is None or self._states is None or thread is None or not thread.native_id:
            return UNKNOWN
        if files is None or files.native_id != thread.native_id:
            for gone in [ident, *(self._files.keys() - self._found.keys())]:
                if gone in self._files:
                    self._files.pop(gone).close()
            try:
                files = self._files[ident] = ThreadFiles(self._reader, thread.native_id)
            except OSError:
                return UNKNOWN
        return self._states.state(files.syscall(), files)

    def servants(self, loop: int) -> list[int]:
        """Threads that work for a client: its event loop, and the one that pickles for it."""
        named = (ident for ident, thread in self._found.items() if thread.name.startswith("Dask-Offload"))
        return [loop, *named]

    def others(self, ident: int) -> Iterator[Stack]:
        """Stacks of some other threads that are not Dask's own, the newest first."""
        found = [each for each, thread in self._found.items() if not thread.name.startswith(DASK_NAMES)]
        for each in [each for each in reversed(found) if each != ident][:MAX_OTHERS]:
            yield self.stack(each)

    def _close(self) -> None:
        for files in self._files.values():
            files.close()
        self._files.clear()


class ClientWindow:
    """Samples of one report's client: activities and stacks, each with its time."""

    def __init__(self, client: Any, ident: int, task: asyncio.Task[Any] | None = None) -> None:
        self._client, self._ident, self._task = client, ident, task
        self._loop = threading.get_ident()  # it is opened on the client's event loop
        self._began = monotonic_ns()
        #: Numbers of activities with their stacks.
        self._known: dict[tuple[str, Stack], int] = {}
        #: Instants of looks, the numbers of what they found, and the nanoseconds for which the GIL was kept before.
        self._ends, self._numbers, self._held = array("q"), array("q"), array("q")
        #: Reason why there are no samples; None while it is sampled.
        self.off: str | None = None

    def look(self, threads: Threads, at: int, late: int) -> None:
        """Add a sample of now; the look came so many nanoseconds ``late``."""
        activity, stack = self._task_now(threads) if self._task is not None else self._thread_now(threads, self._ident)
        held = 0
        if late >= LONG_HOLD_NS:  # somebody kept the GIL, and may do something else by now
            if threads.computed(self._ident) >= MOST * late:  # the rest it waited for a core itself
                held = late
                if activity in (WAIT, RECEIVE, SEND, CALL, LOCK):
                    own = max((i for i, frame in enumerate(stack) if is_the_users(frame.file)), default=-1)
                    activity, stack = COMPUTE, (*stack[: own + 1], Frame("(just before)", "", 0))
            elif activity == RECEIVE and threads.computed(*threads.servants(self._loop)) >= MOST * late:
                activity = UNPICKLE
        self.add(activity, stack, at, held)

    def forget_task(self) -> None:
        """Keep no asyncio task, and so no result of it."""
        self._task = None

    def add(self, activity: str, stack: Stack, at: int, held: int = 0) -> None:
        """Add a sample."""
        known = self._known
        number = known.get((activity, stack))
        if number is None:
            if len(known) >= MAX_ROWS:
                stack = ()
            number = known.setdefault((activity, stack), len(known))
        if len(self._ends) >= MAX_SAMPLES:
            for values in (self._ends, self._numbers, self._held):
                del values[::2]
        self._ends.append(at)
        self._numbers.append(number)
        self._held.append(held)

    def rows(self, stopped: int, busy: Sequence[Interval]) -> tuple[ClientRow, ...]:
        """Time by activity and stack until ``stopped``; ``busy`` are the times with work on the cluster, in order."""
        spent = [[0, 0, 0] for _ in self._known]
        start, at = self._began, 0
        last = len(self._ends) - 1
        for i, (end, number, held) in enumerate(zip(self._ends, self._numbers, self._held, strict=True)):
            end = stopped if i == last else min(end, stopped)
            worked = 0
            while at < len(busy) and busy[at][0] < end:
                worked += max(0, min(busy[at][1], end) - max(busy[at][0], start))
                if busy[at][1] > end:
                    break
                at += 1
            row = spent[number]
            row[0] += max(0, end - start)
            row[1] += max(0, end - start - worked)
            row[2] += min(held, max(0, end - start))
            start = max(start, end)
        found = zip(self._known, spent, strict=True)
        rows = [ClientRow(activity, stack, *times) for (activity, stack), times in found if times[0]]
        return tuple(sorted(rows, key=lambda row: -row.ns))

    def _thread_now(self, threads: Threads, ident: int) -> tuple[str, Stack]:
        stack = threads.stack(ident)
        activity, shown = activity_of(stack, waits=bool(stack) and _WAITING.search(stack[-1].file) is not None)
        if activity in (WAIT, SEND, CALL):
            return self._waits(threads, activity), shown
        if activity:
            return activity, shown
        state = threads.state(ident)
        if state in (RUNNING, GIL):
            return COMPUTE, shown
        if stack and _ON_DASK.search(stack[-1].file) and self._joblib_waits(stack[-1].file):
            return self._waits(threads, WAIT), shown
        if state == UNKNOWN:
            state = LOCK if stack and _WAITING.search(stack[-1].file) else OWN
        if state == LOCK:
            for other in threads.others(ident):
                if any(is_the_users(frame.file) for frame in other):
                    activity, at = activity_of(other, waits=_WAITING.search(other[-1].file) is not None)
                    if activity and activity != IMPORT:
                        return self._waits(threads, activity) if activity in (WAIT, SEND, CALL) else activity, at
        return state, shown

    def _task_now(self, threads: Threads) -> tuple[str, Stack]:
        """Activity of an asyncio task, or of other coroutines of the user's that run while it awaits."""
        stack = threads.stack(self._ident)
        if not has_nothing_to_do(stack) and any(is_the_users(frame.file) for frame in stack):
            return self._thread_now(threads, self._ident)
        assert self._task is not None
        awaited = threads.stack_of(_awaiting(self._task))
        activity, shown = activity_of(awaited, waits=True)
        if activity in (WAIT, SEND, CALL):
            return self._waits(threads, activity), shown
        if not activity and awaited and awaited[-1].file == _TASKS_FILE and awaited[-1].function == "sleep":
            return "sleep", shown
        return activity or (WAIT if has_outstanding(self._client) else AWAIT), shown

    def _joblib_waits(self, file: str) -> bool:
        """True if joblib, which sleeps until batches end, waits for Dask and not for processes of its own."""
        return _JOBLIB_ON_DASK in sys.modules and (file.endswith("_dask.py") or has_outstanding(self._client))

    def _waits(self, threads: Threads, activity: str) -> str:
        """Activity of the threads that work for the client while it waits for them."""
        for stack in map(threads.stack, threads.servants(self._loop)):
            if has_nothing_to_do(stack) or any(_SERVERS.search(frame.file) for frame in stack):
                continue
            kinds = {_kind(frame) for frame in stack}
            if found := next((kind for kind in (UNPICKLE, PICKLE) if kind in kinds), None):
                return found
        return RECEIVE if activity == WAIT and not has_outstanding(self._client) else activity


def _awaiting(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Frames of the coroutines that a suspended task awaits, from the outermost inwards."""
    at: Any = task.get_coro()
    for _ in range(MAX_WALKED):
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(at, f"{kind}_frame")), None)
        if kind is None or (frame := getattr(at, f"{kind}_frame")) is None:
            return
        yield frame
        at = getattr(at, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")


class ClientSampler:
    """Samples the clients of all open reports of this process, in one thread; a failure ends it."""

    def __init__(self) -> None:
        self._guard = Guard("the sampler", "dask_efficiency no longer samples what clients of this process do")
        self.spent = 0  #: CPU nanoseconds so far.
        self.begin()

    def begin(self) -> None:
        """Begin without a thread, as in a process that was forked from one with reports."""
        self._windows: tuple[ClientWindow, ...] = ()
        self._lock = threading.Lock()
        self._alarm = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, window: ClientWindow) -> None:
        """Begin to sample for one more report."""
        if not has_gil():  # frames of others change while they are walked
            window.off = "this Python has no GIL"
        window.off = window.off or self._guard.off
        if window.off is not None:
            return
        with self._lock:
            self._windows += (window,)
            if self._thread is None:
                self._alarm.clear()
                self._thread = threading.Thread(target=self._run, name="dask-efficiency-client", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:  # no more threads
                    self._thread, self._windows = None, ()
                    self._guard.fail(error)
                    window.off = self._guard.off

    def close(self, window: ClientWindow) -> None:
        """End with a report; the last one ends the thread."""
        with self._lock:
            self._windows = tuple(each for each in self._windows if each is not window)
            window.forget_task()
            window.off = window.off or self._guard.off
            if not self._windows:
                self._alarm.set()
                self._thread = None

    def _run(self) -> None:
        try:
            with ExitStack() as opened:
                self._sample(Threads(opened))
        except Exception as error:
            self._guard.fail(error)

    def _sample(self, threads: Threads) -> None:
        cost, chance = MIN_INTERVAL_NS * MAX_SHARE, random.Random()
        while self._mine():
            began = thread_time_ns()
            interval = min(MAX_INTERVAL_NS, max(MIN_INTERVAL_NS, round(cost / MAX_SHARE)))
            interval = round(interval * (0.5 + chance.random()))  # work as regular as looks would be seen at one line
            due = monotonic_ns() + interval
            if self._alarm.wait(interval / 1e9):
                continue
            at = monotonic_ns()
            with self._lock:
                threads.look()
                try:
                    late = at - due - threads.waited_for_core()
                    for window in self._mine():
                        window.look(threads, at, late)
                finally:
                    threads.forget()
            took = thread_time_ns() - began
            cost += 0.4 * (min(took, 3 * cost) - cost)
            self.spent += took

    def _mine(self) -> tuple[ClientWindow, ...]:
        """Open windows; none for a thread that another one has followed."""
        return self._windows if self._thread is threading.current_thread() else ()


#: The one of this process.
SAMPLER = ClientSampler()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SAMPLER.begin)
