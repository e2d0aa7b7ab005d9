"""Look: a look at the threads of a worker's tasks, and the causes of their waiting since the one before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import NamedTuple

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.lines import EVENT_LOOP, HolderRow, Holdup, SampleRow, Stack
from dask_efficiency.accounts.rows import divide
from dask_efficiency.accounts.worker.waiting import FREE_SLOT_LIBRARY, LIBRARY, Key
from dask_efficiency.plugin.processors import Throttling
from dask_efficiency.plugin.stacks import Stacks, frames_of_others, has_nothing_to_do
from dask_efficiency.plugin.worker.wait_states import GIL, LOCK, RUNNING, STOPPED, UNKNOWN, PythonLocks, WaitStates
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
#: Share of such a hold that a thread must have used as CPU to be named.
_MIN_HELD = 0.6
#: CPU share since the last look below which an event loop that wants the GIL or a core is kept waiting by others.
_MIN_WORK = 0.5
#: Shares of the cores that libraries' threads used or waited for, in all, or mostly waited for: then tasks that wait
#: for them wait for a core.
_ALL_CORES, _HALF_OF_THEM = 0.8, 0.4
#: Nanoseconds between two readings of the CPU limit's statistics.
THROTTLING_NS = 500_000_000
#: Spans and prefixes with time without a witness; beyond, the oldest goes. A guess, to bound memory.
MAX_KEYS = 1_000


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
        self._loop_ident, self._cores, self._nthreads = loop_ident, cores, nthreads
        #: Called with results: for the sums, and for the profile.
        self._add, self._sample = add, sample
        self.stacks_wanted = False
        self.wants_libraries = False
        self._frames: dict[int, FrameType] = {}
        self._python_locks = PythonLocks()
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

    def find_libraries(self) -> None:
        """Find the threads of libraries if the last look needs them; outside a look, as it releases the GIL."""
        if self.wants_libraries:
            self.wants_libraries = False
            self._libraries.find(self._threads.native_ids, self._last)

    def begin(self, at: int) -> None:
        """Begin at ``at``, after a time in which no task ran."""
        self._threads.look()
        self._threads.read_cpu()
        self._elapsed, self._last = max(1, at - self._last), at

    def loop_stack(self) -> Stack | None:
        """Stack of the event loop; None if it has nothing to do, or others kept the GIL or the cores from it."""
        stack = self._other_stack(self._loop_ident)
        if has_nothing_to_do(stack):
            return None
        files = self._threads.other(self._loop_ident)
        if files is None or self._states.state(files.syscall(), files) not in (GIL, RUNNING):
            return stack
        return stack if self._threads.cpu_of(self._loop_ident) >= _MIN_WORK * self._elapsed else None

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
                    self._witness_computing(watched, thread.key, watched.cpu)
                    watched.cpu = 0
                else:
                    self._at_wait(thread, *((0.0, 0.0) if thread.ident in at_python_locks else shares))
                    watched.rest = 0
                if thread.fresh:
                    watched.cpu = watched.rest = 0
                watched.recent = 0
            if gil_wait > LONG_HOLD_NS and self._frames:
                self._name_holder(gil_wait, seen)
        finally:
            self._frames = {}
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
                watched.stack = ()
            if not watched.stack and self._frames and self._stacks is not None:
                watched.stack = self._stacks.task(self._frames.get(ident))
            self._waited_for_core(watched, key, core)
            seen[ident] = _Seen(ident, watched, key, fresh, core, watched.state)
        return seen

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
        self._witness_computing(watched, key, computed)
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

    def _witness_computing(self, watched: Watched, key: Key, ns: int) -> None:
        if ns > 0 and self.stacks_wanted:
            self._sample(("profile", SampleRow(str(Bucket.THREAD_CPU), "", key[1], watched.stack), ns))

    def _leave(self, watched: Watched, key: Key) -> None:
        """Leave time of an ended task without a witness to the next task of its span and prefix."""
        orphan = self._orphans.setdefault(key, [0, 0])
        orphan[0] += watched.cpu
        orphan[1] += watched.rest
        if len(self._orphans) > MAX_KEYS:
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
            if at - self._throttling_at < THROTTLING_NS and len(self._core) < MAX_KEYS:
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
        frames = self._frames or frames_of_others()
        return {ident for ident in locked if self._python_locks.hold_up(frames.get(ident))}

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
        """Threads that may have held the GIL, and used CPU, since the look before; none just woke up in its loop."""
        if not waiting_for_gil or not self._frames:
            return []
        running = {ident for ident, thread in seen.items() if thread.state == RUNNING}
        may = running if handed_over else waiting_for_gil
        used = {ident: self._threads.cpu_of(ident) for ident in self._threads.python}
        if len(may) < 2 and not handed_over:  # a thread does not wait for itself
            may = set(used)
        holders = [(ident, used[ident], *self._who(ident, seen)) for ident in may if used.get(ident)]
        return [holder for holder in holders if not has_nothing_to_do(holder[-1])]

    def _blame(self, waits: _Seen, ns: int, holders: Sequence[_Holder]) -> None:
        """Apportion a wait for the GIL among its possible holders, by their CPU."""
        whole = sum(cpu for ident, cpu, _, _ in holders if ident != waits.ident)
        for ident, cpu, who, stack in holders:
            part = ns * cpu // whole if whole and ident != waits.ident else 0
            if part > 0:
                self._sample(("holders", HolderRow(waits.key[1], who, stack), part))

    def _name_holder(self, gil_wait: int, seen: Mapping[int, _Seen]) -> None:
        """Name the holder of the GIL after a long hold, if it used CPU for about as long."""
        ident = max(self._threads.python, key=self._threads.cpu_of)
        if self._threads.cpu_of(ident) > _MIN_HELD * gil_wait:
            who, stack = self._who(ident, seen)
            # It may do something else by now than while it held the GIL.
            self._sample(("gil_holds", Holdup(gil_wait, who, () if has_nothing_to_do(stack) else stack), 0))

    def _who(self, ident: int, seen: Mapping[int, _Seen]) -> tuple[str, Stack]:
        if task := seen.get(ident):
            return task.key[1], task.watched.stack
        if ident == self._loop_ident:
            return EVENT_LOOP, self._other_stack(ident)
        return f"(thread {self._threads.python[ident].name[:100]})", self._other_stack(ident)

    def _other_stack(self, ident: int) -> Stack:
        return () if self._stacks is None else self._stacks.loop((self._frames or frames_of_others()).get(ident))
