"""Look: a look at the threads of a worker's tasks, and the causes of their waiting since the one before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import NamedTuple

from dask_efficiency.accounts.buckets import UNKNOWN, Bucket
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.lines import (
    CHILD_CPU,
    EVENT_LOOP,
    NATIVE,
    PYTHON,
    UNDER_GIL,
    HolderRow,
    Holdup,
    SampleRow,
    Stack,
    has_nothing_to_do,
)
from dask_efficiency.accounts.rows import MAX_APART, divide
from dask_efficiency.accounts.worker.waiting import FREE_SLOT_LIBRARY, LIBRARY, Key
from dask_efficiency.plugin.loop_blocks import LoopClocks, LoopLook
from dask_efficiency.plugin.processors import Throttling
from dask_efficiency.plugin.stacks import MAX_WALKED, Stacks, frames_of_others
from dask_efficiency.plugin.worker.children import Children
from dask_efficiency.plugin.worker.lock_looks import rows_of_look, told
from dask_efficiency.plugin.worker.wait_states import CHILD, GIL, LOCK, POLLS, RUNNING, SLEEP, STOPPED, WaitStates
from dask_efficiency.plugin.worker.watched_threads import LibraryThreads, Watched, WatchedThreads
from dask_efficiency.plugin.worker.window_details import Sample

CORE, THROTTLED = "core", "throttled"
#: Bucket of waiting for threads of libraries.
LIBRARY_THREADS = "library-threads"
#: Share of Python's switch interval after which a thread that waits for the GIL has asked its holder to release it;
#: with a margin for clocks.
_ASKED = 0.8
#: Nanoseconds of holding the GIL at once for which a thread is named: long enough for a user to notice.
LONG_HOLD_NS = 100_000_000
#: CPU nanoseconds of a thread that is named, half of such a hold: on a crowded host it waits for a core meanwhile.
MIN_HOLD_NS = 50_000_000
#: Share of the time since the look before for which the sampler was kept from the GIL, from which the loop was, too.
_MOST = 0.5
#: Shares of the cores that libraries' threads used or waited for, in all, or mostly waited for: then tasks that wait
#: for them wait for a core.
_ALL_CORES, _HALF_OF_THEM = 0.8, 0.4
#: Nanoseconds between two readings of the CPU limit's statistics.
THROTTLING_NS = 500_000_000


class _Seen(NamedTuple):
    """Thread that runs a task, in one look."""

    ident: int
    watched: Watched
    key: Key
    #: True if its task began since the look before.
    fresh: bool
    #: Nanoseconds for which it waited for a core since then.
    core: int
    state: str


#: Thread that may have held the GIL: ident, CPU nanoseconds since the look before, name and stack.
_Holder = tuple[int, int, str, Stack]


class Look:
    """Looks at the threads that run tasks.

    Between two looks at one task, time = CPU + wait for a core + rest, all three known by the kernel's clocks. The wait
    for a core is a cause. CPU and rest need a witness: the next look that finds the thread computing gives the line,
    the next one that finds it waiting gives the cause. Time that a task leaves without a witness goes to the next task
    of its span and prefix that has one.

    A task that began since the look before stands for all the time since: so tasks shorter than the interval, most of
    which are never seen, are right in sum.
    """

    def __init__(
        self,
        threads: WatchedThreads,
        states: WaitStates,
        throttling: Throttling,
        libraries: LibraryThreads,
        stacks: Stacks | None,
        *,
        running: Callable[[], Sequence[tuple[int, int, Key | None]]],
        task_of: Callable[[int], tuple[str, bool] | None],
        loop_ident: int,
        cores: float,
        nthreads: Callable[[], int],
        add: Callable[[tuple[Key, str, int]], object],
        sample: Callable[[Sample], object],
    ) -> None:
        self._threads, self._states, self._throttling, self._libraries = threads, states, throttling, libraries
        self._stacks = stacks
        #: Gives ident, start of the task, and span and prefix if it holds a slot, of each thread that runs a task.
        self._running = running
        #: Gives the prefix of the task that a thread runs, or has just ended.
        self._task_of = task_of
        self._loop_ident, self._cores, self._nthreads = loop_ident, cores, nthreads
        #: Called with results: for the sums, and for the profile.
        self._add, self._sample = add, sample
        self.stacks_wanted = False
        self.wants_libraries = False
        #: Of this look: for stacks that are kept, and to tell causes.
        self._frames: dict[int, FrameType] = {}
        self._seen_frames: dict[int, FrameType] = {}
        #: Prefixes by native id of the threads that waited for processes in the last look, if stacks are kept.
        self._for_children: dict[int, str] = {}
        self._children = Children()
        #: Instant of the look before, and nanoseconds from it to this one.
        self._last, self._elapsed = 0, 1
        #: By span and prefix: CPU and rest of ended tasks without a witness.
        self._orphans: dict[Key, list[int]] = {}
        #: Keys of ``_orphans`` at the last call of :meth:`give_up`.
        self._old_orphans: set[Key] = set()
        #: Nanoseconds of waiting by cause, by span and prefix: since then, and before.
        self._waits: dict[Key, dict[str, int]] = {}
        self._former_waits: dict[Key, dict[str, int]] = {}
        #: Waits for a core by span, prefix and stack that are not split yet by the CPU limit.
        self._core: dict[tuple[Key, Stack], int] = {}
        self._throttling_at = 0
        #: Of the event loop's thread; the last look's wait for the GIL, and its holder if that was long.
        self._loop_clocks: LoopClocks | None = None
        self._gil_wait = 0
        self._holder: tuple[str, Stack] | None = None

    def read_files(self) -> None:
        """Find the threads of libraries, and what children used, if the last look needs that.

        Outside a look, as opening files releases the GIL.
        """
        if self.wants_libraries:
            self.wants_libraries = False
            self._libraries.find(self._threads.native_ids, self._last)
        if waiting := self._for_children:
            used = self._children.used(waiting, self._last) // len(waiting)
            for prefix in waiting.values() if used else ():
                self._sample(("profile", SampleRow(CHILD_CPU, "", prefix, ()), used))

    def begin(self, at: int, *, gil_wait: int = 0) -> None:
        """Begin at ``at``, after a time in which no task ran, or one began; the caller waited for the GIL so long."""
        self._threads.look()
        self._threads.read_cpu()
        self._elapsed, self._last = max(1, at - self._last), at
        self._look_at_clocks(at, gil_wait)
        if gil_wait > MIN_HOLD_NS and self._stacks is not None:
            self._name_holder(gil_wait, {})

    def _look_at_clocks(self, at: int, gil_wait: int) -> None:
        """Read the clocks of the event loop's thread."""
        self._gil_wait, self._holder = gil_wait, None
        files = self._threads.other(self._loop_ident)
        clocks = files.clocks() if files is not None else None
        if clocks is not None:
            if self._loop_clocks is None:
                self._loop_clocks = LoopClocks(at, clocks)
            self._loop_clocks.read(at, clocks)

    def look_at_loop(self) -> LoopLook:
        """Waits of the event loop's thread since the look before, with its stack, and who held the GIL for long."""
        stack = () if self._stacks is None else self._stacks.loop(frames_of_others().get(self._loop_ident), MAX_WALKED)
        own = None if has_nothing_to_do(stack) else stack
        files = self._threads.other(self._loop_ident)
        if files is None or self._loop_clocks is None:
            return LoopLook(stack=own)
        clocks, state = self._loop_clocks, self._states.state(files.syscall(), files)
        kept_out = self._gil_wait >= _MOST * self._elapsed
        if kept_out and self._holder is not None:
            if self._holder[0] == EVENT_LOOP:
                return LoopLook(clocks.core, 0, clocks.cpu, state == RUNNING, self._holder[1])
            # On a crowded host it waits for a core each time that it asks.
            return LoopLook(0, clocks.core + clocks.rest, clocks.cpu, state == RUNNING, own, *self._holder)
        gil = max(0, clocks.rest) if kept_out or state == GIL else 0
        return LoopLook(clocks.core, gil, clocks.cpu, state == RUNNING, own)

    def go_on(self, at: int) -> None:
        """Count threads that have not run since they were seen waiting; not at a lock, which may be a library's."""
        for ident, start, key in self._running():
            found = self._threads.task_thread(ident, at)
            if key is None or found is None:
                continue
            watched, clocks = found
            if watched.start == start and watched.key == key:
                self._waited_for_core(watched, key, watched.read(clocks, at))
                if watched.state not in (None, LOCK, GIL, RUNNING):
                    assert watched.state is not None
                    self._witness_wait(watched, key, watched.state, watched.rest)
                    watched.rest = 0
        self._settle_core(at)

    def sample(self, at: int, *, gil_wait: int, stopped: int = 0) -> None:
        """Look at the threads; the caller waited for the GIL, and the process was ``stopped``, for so long."""
        before, self._last = self._last, at
        elapsed = self._elapsed = max(1, at - before)
        self._threads.look()
        computed = self._threads.read_cpu()
        self._look_at_clocks(at, gil_wait)
        try:
            if self.stacks_wanted and self._stacks is not None:
                self._frames = frames_of_others()
            seen = self._see(at, before)
            at_python_locks = self._at_python_locks(seen) if computed else set()
            waited = sum(
                elapsed if thread.fresh else max(0, thread.watched.recent)
                for thread in seen.values()
                if thread.state == LOCK and thread.ident not in at_python_locks
            )
            shares = self._shares_of_libraries(waited, computed)
            self._beside_tasks(seen, computed - waited)
            self._for_children = {}
            if self._frames:
                waiting = (thread for thread in seen.values() if thread.state == CHILD)
                self._for_children = {thread.watched.files.native_id: thread.key[1] for thread in waiting}
                self._look_at_locks(seen)
            waiting_for_gil = self._waiting_for_gil(seen)
            # The former holder released the GIL by itself, and so is none of those that wait for it; else it was taken
            # from one of them. Nobody is asked for it before the switch interval is over; but another thread than the
            # caller may have asked, so some thread must be seen to run without it.
            runs = any(thread.state == RUNNING for thread in seen.values())
            handed_over = runs and gil_wait < _ASKED * sys.getswitchinterval() * 1e9
            holders = self._may_have_held(seen, waiting_for_gil, handed_over)
            for thread in seen.values():
                watched = thread.watched
                if thread.fresh:
                    watched.cpu = watched.rest = max(0, elapsed - thread.core)
                else:
                    self._adopt(watched, thread.key, thread.state)
                if stopped and thread.state in (RUNNING, GIL):
                    stood = min(max(0, watched.rest), stopped)
                    self._witness_wait(watched, thread.key, STOPPED, stood)
                    watched.rest -= stood
                if thread.state == GIL:
                    self._at_gil(thread, len(waiting_for_gil), handed_over, holders)
                elif thread.state == RUNNING:
                    # One that executes Python wants the GIL, which is held here: it has not got a core to ask for it.
                    self._witness_computing(watched, thread.key, watched.cpu, PYTHON if watched.interprets else NATIVE)
                    watched.cpu = 0
                else:
                    self._at_wait(thread, *((0.0, 0.0) if thread.ident in at_python_locks else shares))
                    watched.rest = 0
                if thread.fresh:
                    watched.cpu = watched.rest = 0
                watched.recent = 0
            if gil_wait > MIN_HOLD_NS and self._frames:
                self._name_holder(gil_wait, seen)
        finally:
            self._frames = self._seen_frames = {}
        self._settle_core(at)

    def _see(self, at: int, before: int) -> dict[int, _Seen]:
        """Read clocks and states of the threads that run tasks, by ident."""
        seen = {}
        for ident, start, key in self._running():
            found = self._threads.task_thread(ident, at)
            if found is None:
                continue
            watched, clocks = found
            fresh = watched.start != start or watched.key != key
            if fresh and watched.key is not None:
                self._leave(watched, watched.key)
            core = watched.read(clocks, at)
            if fresh:
                if watched.looked != before:  # some of its waiting since it was read last was no task's
                    core = 0
                watched.begin(start, key)
            watched.looked = at
            if key is None:
                continue
            glimpse, watched.glimpse = watched.glimpse, b""
            if watched.state is None or watched.state == RUNNING:
                watched.state = self._states.state(glimpse or watched.files.syscall(), watched.files)
                watched.stack, watched.polls = (), False
                if watched.state in (LOCK, SLEEP, POLLS):
                    if self._stacks is not None:
                        watched.stack = self._stacks.waiting(self._present().get(ident))
                    watched.state, watched.polls = told(watched.state, watched.stack)
            if not watched.stack and self._frames and self._stacks is not None:
                frame = self._frames.get(ident)
                watched.interprets = self._stacks.interprets(frame)
                if watched.state in (RUNNING, GIL):
                    runs_c = watched.state == RUNNING and not watched.interprets
                    watched.stack = self._stacks.computing(frame, without_gil=runs_c)
                else:
                    watched.stack = self._stacks.waiting(frame)
            self._waited_for_core(watched, key, core)
            seen[ident] = _Seen(ident, watched, key, fresh, core, watched.state)
        return seen

    def _present(self) -> dict[int, FrameType]:
        """Frames of the other threads in this look."""
        self._seen_frames = self._seen_frames or self._frames or frames_of_others()
        return self._seen_frames

    def _look_at_locks(self, seen: Mapping[int, _Seen]) -> None:
        """Count who may hold the locks at which threads wait."""
        waiting = [(thread.key[1], thread.watched.stack) for thread in seen.values() if thread.state == LOCK]
        if waiting:
            others = {*(ident for ident in seen if seen[ident].state != LOCK), *self._threads.foreign}
            for row, looks in rows_of_look(waiting, [self._who(ident, seen) for ident in others]).items():
                self._sample(("lock_looks", row, looks))

    def _at_wait(self, thread: _Seen, library: float, core: float) -> None:
        """Split waiting at a lock: threads of a library that computed, or that waited for a core, are its cause."""
        watched, key = thread.watched, thread.key
        left = max(0, watched.rest)
        if thread.state == LOCK and (library or core):
            ns, waited_for_core = int(left * library), int(left * core)
            self._witness_wait(watched, key, LIBRARY, ns)
            self._waited_for_core(watched, key, waited_for_core)
            left -= ns + waited_for_core
        self._witness_wait(watched, key, thread.state, left)

    def _at_gil(self, thread: _Seen, n: int, handed_over: bool, holders: Sequence[_Holder]) -> None:
        """Split the time of a thread that wants the GIL: each of n such threads lost it with probability 1/n."""
        watched, key = thread.watched, thread.key
        waiting = n if handed_over else n - 1
        waited = max(0, watched.rest * waiting // n)
        self._witness_wait(watched, key, GIL, waited)
        self._blame(thread, waited, holders)
        computed = watched.cpu * (n - waiting) // n
        self._witness_computing(watched, key, computed, PYTHON if watched.interprets else UNDER_GIL)
        watched.rest -= waited
        watched.cpu -= computed

    def _witness_wait(self, watched: Watched, key: Key, cause: str, ns: int) -> None:
        if ns > 0:
            waits = self._waits.setdefault(key, {})
            waits[cause] = waits.get(cause, 0) + ns
            self._count(key, cause, ns, watched.stack)

    def _count(self, key: Key, cause: str, ns: int, stack: Stack) -> None:
        if ns > 0:
            self._add((key, cause, ns))
            if self.stacks_wanted:
                bucket, cause = (LIBRARY_THREADS, "") if cause == LIBRARY else (str(Bucket.THREAD_NONCPU), cause)
                self._sample(("profile", SampleRow(bucket, cause, key[1], stack), ns))

    def _witness_computing(self, watched: Watched, key: Key, ns: int, how: str) -> None:
        if ns > 0 and self.stacks_wanted:
            self._sample(("profile", SampleRow(str(Bucket.THREAD_CPU), how, key[1], watched.stack), ns))

    def _leave(self, watched: Watched, key: Key) -> None:
        """Leave time of an ended task without a witness to the next task of its span and prefix."""
        orphan = self._orphans.setdefault(key, [0, 0])
        orphan[0] += watched.cpu
        orphan[1] += watched.rest
        if len(self._orphans) > MAX_APART:
            del self._orphans[next(iter(self._orphans))]

    def give_up(self, *, every: bool) -> None:
        """Give up waits of ended tasks without a witness: all of them, or those that had none at the last call.

        They are apportioned like the recent waits of their span and prefix, and unknown without any. Some waits are
        never seen, such as for a disk that answers within the time of waking up.
        """
        for key in [*(self._orphans if every else self._old_orphans & self._orphans.keys())]:
            rest = self._orphans.pop(key)[1]
            waits = self._waits.get(key) or self._former_waits.get(key)
            if not waits:
                self._count(key, UNKNOWN, rest, ())
            elif rest > 0:
                for cause, ns in divide(waits, rest).items():
                    if ns:
                        self._add((key, cause, ns))
        self._old_orphans = {key for key, (_, rest) in self._orphans.items() if rest > 0}
        self._waits, self._former_waits = {}, self._waits

    def _adopt(self, watched: Watched, key: Key, state: str) -> None:
        orphan = self._orphans.get(key)
        if orphan is not None:
            if state in (RUNNING, GIL):
                watched.cpu += orphan[0]
                orphan[0] = 0
            if state != RUNNING:
                watched.rest += orphan[1]
                orphan[1] = 0

    def _waited_for_core(self, watched: Watched, key: Key, ns: int) -> None:
        if ns > 0:
            of = key, watched.stack if self.stacks_wanted else ()
            self._core[of] = self._core.get(of, 0) + ns

    def _settle_core(self, at: int) -> None:
        """Count waits for a core, with an estimate of the part that the CPU limit explains."""
        throttled = whole = 0
        if self._throttling.limited:
            if at - self._throttling_at < THROTTLING_NS and len(self._core) < MAX_APART:
                return
            self._throttling_at = at
            whole = sum(self._core.values())
            throttled = min(whole, self._throttling.more())
        core, self._core = self._core, {}
        for (key, stack), ns in core.items():
            part = ns * throttled // whole if throttled else 0
            self._count(key, THROTTLED, part, stack)
            self._count(key, CORE, ns - part, stack)

    def _at_python_locks(self, seen: Mapping[int, _Seen]) -> set[int]:
        """Idents of the threads that wait at locks of Python, and so for no library."""
        locked = [ident for ident, thread in seen.items() if thread.state == LOCK]
        if not locked or self._stacks is None:
            return set()
        frames, hold_up = self._present(), self._stacks.calls.hold_up
        return {ident for ident in locked if seen[ident].watched.polls or hold_up(frames.get(ident))}

    def _shares_of_libraries(self, waited: int, computed: int) -> tuple[float, float]:
        """Shares of the waiting for libraries since the last look in which their threads computed, or lacked a core.

        Tasks waited so many nanoseconds at locks that may be of libraries, whose threads computed for so many. If they
        have all cores, further tasks wait for these cores too.
        """
        if not waited:
            return 0.0, 0.0
        library = min(1.0, computed / waited)
        core = 0
        if computed and library < 1:
            self.wants_libraries = True
            core = self._libraries.core_wait(self._last)
            busy = (computed + core) / (self._cores * self._elapsed)
            if busy >= (_HALF_OF_THEM if core > computed else _ALL_CORES):
                return library, 1.0 - library
        return library, min(1.0 - library, core / waited)

    def _beside_tasks(self, seen: Mapping[int, _Seen], computed: int) -> None:
        """Count the work of libraries' threads in free slots for the tasks at work."""
        free = max(0, self._nthreads() - len(seen)) * self._elapsed
        part = min(computed, free) // max(1, len(seen))
        if part > 0:
            for thread in seen.values():
                self._add((thread.key, FREE_SLOT_LIBRARY, part))

    def _waiting_for_gil(self, seen: Mapping[int, _Seen]) -> set[int]:
        """Idents of the threads that wait for the GIL; threads without a task are read only if a task waits for it."""
        waiting = {ident for ident, thread in seen.items() if thread.state == GIL}
        for ident in self._threads.python.keys() - seen.keys() if waiting else ():
            files = self._threads.other(ident)
            if files is not None and self._states.state(files.syscall(), files) == GIL:
                waiting.add(ident)
        return waiting

    def _may_have_held(self, seen: Mapping[int, _Seen], waiting_for_gil: set[int], handed_over: bool) -> list[_Holder]:
        """Threads that may have held the GIL, and used CPU, since the look before."""
        if not waiting_for_gil or not self._frames:
            return []
        running = {ident for ident, thread in seen.items() if thread.state == RUNNING}
        may = running if handed_over else waiting_for_gil
        used = {ident: self._threads.cpu_of(ident) for ident in self._threads.python}
        if len(may) < 2 and not handed_over:  # a thread does not wait for itself
            may = set(used)
        return [(ident, used[ident], *self._who(ident, seen)) for ident in may if used.get(ident)]

    def _blame(self, waits: _Seen, ns: int, holders: Sequence[_Holder]) -> None:
        """Apportion a wait for the GIL among its possible holders, by their CPU.

        The part of the waiting thread itself, and of a loop that has just woken up, is nobody's: else a thread that
        computed next to nothing would be blamed for all of it.
        """
        whole = sum(cpu for _, cpu, _, _ in holders)
        for ident, cpu, who, stack in holders:
            part = ns * cpu // whole
            if part > 0 and ident != waits.ident and not has_nothing_to_do(stack):
                self._sample(("holders", HolderRow(waits.key[1], who, stack), part))

    def _name_holder(self, gil_wait: int, seen: Mapping[int, _Seen]) -> None:
        """Name the holder of the GIL after a long hold: the thread that computed most, and does not go on without."""
        without = {ident for ident, thread in seen.items() if thread.state == RUNNING}
        ident = max(self._threads.python.keys() - without, key=self._threads.cpu_of)
        if self._threads.cpu_of(ident) < MIN_HOLD_NS:
            return
        who, stack = self._who(ident, seen)
        files = self._threads.other(ident) if ident not in seen else None
        if files is not None and self._states.state(files.syscall(), files) not in (GIL, RUNNING):
            stack = ()  # it does something else by now
        self._holder = who, stack
        if gil_wait > LONG_HOLD_NS:
            self._sample(("gil_holds", Holdup(gil_wait, who, stack), 0))

    def _who(self, ident: int, seen: Mapping[int, _Seen]) -> tuple[str, Stack]:
        if task := seen.get(ident):
            return task.key[1], task.watched.stack
        if ident == self._loop_ident:
            return EVENT_LOOP, self._other_stack(ident)
        if self._stacks is not None and (other := self._task_of(ident)) is not None:  # it may have ended
            prefix, goes_on = other
            return prefix, self._stacks.task((self._frames or frames_of_others()).get(ident)) if goes_on else ()
        return fitting(f"(thread {self._threads.python[ident].name[:100]})"), self._other_stack(ident)

    def _other_stack(self, ident: int) -> Stack:
        return () if self._stacks is None else self._stacks.loop((self._frames or frames_of_others()).get(ident))
