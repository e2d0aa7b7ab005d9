"""An unbiased judge of what tasks wait for: a process of its own samples the worker's threads from outside.

It needs nothing of the worker but the address of the GIL, takes no lock of it and never waits for its GIL. How long a
task's thread was on a core and waited for one is exact (the task reads the kernel's clocks when it starts and stops:
:class:`Mark`); the rest is apportioned like the samples in which the thread was seen to sleep in a system call.

``python -m benchmarks.waiting_judge PID LOW HIGH FILE THREAD...`` samples these threads until its input ends; addresses
of futexes in ``[LOW, HIGH)`` are the GIL's. It imports nothing of what it judges. It needs Linux on x86-64 or arm64,
and the right to look: :func:`let_in` gives it where Yama would refuse, and root always has it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Mean seconds between two looks at one thread. Each interval is drawn anew: the GIL is asked for every 5 ms, which
#: equal intervals would meet always at the same point.
PERIOD = 0.006

#: Seconds between two readings of the CPU clocks of all threads.
CLOCKS_PERIOD = 0.025

#: What a thread can be seen doing. ``ready`` is on a core or waits for one; ``lock`` is a futex that is not the GIL's.
SEEN = ("ready", "gil", "lock", "sleep", "file", "network", "child-process", "page-fault", "unknown")

SAMPLE = np.dtype([("at", np.int64), ("thread", np.int64), ("seen", np.uint8)])
CLOCK = np.dtype([("at", np.int64), ("thread", np.int64), ("cpu", np.int64), ("core_wait", np.int64)])

#: The GIL is a few words with two mutexes and two condition variables around the futex that was seen: 200 bytes.
GIL_BYTES = 256

#: What library's threads did is compared with the waiting in steps of so many nanoseconds. Seen from outside, the
#: kernel adds to a thread's CPU every 1 to 4 ms only, and to its waiting for a core when that is over: 100 ms on a busy
#: machine.
STEP = 250_000_000

#: System calls by what a thread waits for that sleeps in one. Calls of a descriptor, which decides, are apart.
_X86 = {
    "sleep": {35, 230},
    "child-process": {61, 247, 56, 57, 58, 435},
    "network": {42, 43, 44, 45, 46, 47, 288, 299, 307},
    "file": {2, 4, 5, 6, 40, 74, 75, 76, 77, 82, 83, 87, 217, 257, 262, 263, 277, 285, 326, 332},
    "descriptor": {0, 1, 17, 18, 19, 20, 295, 296, 327, 328},
    "poll": {7, 271},
    "select": {23, 270},
    "epoll": {232, 281},
    "futex": {202},
}
_ARM = {
    "sleep": {101, 115},
    "child-process": {260, 95, 220, 435},
    "network": {202, 203, 206, 207, 211, 212, 242, 243, 269},
    "file": {34, 35, 45, 46, 47, 48, 56, 61, 71, 79, 80, 81, 82, 83, 84, 267, 276, 285, 291},
    "descriptor": {63, 64, 65, 66, 67, 68, 69, 70, 286, 287},
    "poll": {73},
    "select": {72},
    "epoll": {22},
    "futex": {98},
}
_CALLS = {call: kind for kind, calls in (_ARM if platform.machine() == "aarch64" else _X86).items() for call in calls}


@dataclass(frozen=True, slots=True)
class Mark:
    """What one task, or one part of it, says of its thread: from when to when, and the kernel's clocks between."""

    process: int
    thread: int
    start: int
    stop: int
    cpu: int
    core_wait: int
    #: Parts of one name are apportioned together.
    part: str = ""
    #: Whether what it calls has threads of its own: a futex is then the library's.
    library: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """What tasks waited for, in nanoseconds; ``cpu`` and the causes add up to ``wall``."""

    wall: int
    cpu: int
    causes: dict[str, float] = field(default_factory=dict)
    #: Samples in which a task's thread slept: what the split of the rest stands on.
    samples: int = 0

    @property
    def waiting(self) -> float:
        """All that is not CPU."""
        return self.wall - self.cpu

    def share(self, *causes: str, beside: Sequence[str] = ()) -> float:
        """Share of the waiting that these causes have, in [0, 1]; causes ``beside`` count as neither."""
        whole = self.waiting - sum(self.causes.get(cause, 0.0) for cause in beside)
        return sum(self.causes.get(cause, 0.0) for cause in causes) / whole if whole > 0 else 0.0


class Marking:
    """The clocks of this thread since it was made."""

    def __init__(self, part: str = "", *, library: bool = False) -> None:
        self.part, self.library = part, library
        self.thread = threading.get_native_id()
        self.core_wait = _core_wait(self.thread)
        self.cpu, self.start = time.thread_time_ns(), time.monotonic_ns()

    def read(self) -> Mark:
        """What they say now."""
        stop, cpu = time.monotonic_ns(), time.thread_time_ns()
        waited = _core_wait(self.thread) - self.core_wait
        return Mark(
            os.getpid(), self.thread, self.start, stop, cpu - self.cpu, waited, part=self.part, library=self.library
        )


def _core_wait(thread: int) -> int:
    """Nanoseconds for which a thread has waited for a core; exact for one that runs, unlike its CPU there."""
    with open(f"/proc/self/task/{thread}/schedstat") as file:
        return int(file.read().split()[1])


# -- in the worker, before it is judged ------------------------------------------------------------


def let_in() -> None:
    """Allow any process of this user to look at this one, where Yama would refuse."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)


def gil_addresses(seconds: float = 1.0) -> tuple[int, int]:
    """Where the GIL's futexes lie: where threads of this process sleep that do nothing but compute in Python.

    ``(0, 0)`` where none was seen, as with a free-threaded build.
    """
    over = threading.Event()
    threads = [threading.Thread(target=_spin, args=(over,), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    found: Counter[int] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until and found.total() < 100:
        for thread in threads:
            with suppress(OSError):
                words = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()
                if len(words) > 2 and _CALLS.get(int(words[0])) == "futex":
                    found[int(words[1], 16)] += 1
    over.set()
    for thread in threads:
        thread.join()
    if not found:
        return 0, 0
    ((address, _),) = found.most_common(1)
    return address - GIL_BYTES, address + GIL_BYTES


def _spin(over: threading.Event) -> None:
    while not over.is_set():
        sum(range(1000))


def watched(gil: tuple[int, int]) -> Watched:
    """What :func:`judge` needs to know of this process, a worker's."""
    threads = [thread for thread in threading.enumerate() if thread.native_id is not None]
    tasks = [thread.native_id for thread in threads if "Dask-Default-Threads" in thread.name]
    return Watched(os.getpid(), gil, tuple(filter(None, tasks)), tuple(filter(None, (t.native_id for t in threads))))


# -- the process that looks ------------------------------------------------------------------------


class Eye:
    """Sees what threads of a process sleep in."""

    def __init__(self, process: int, gil: range) -> None:
        self.process, self.gil = process, gil
        self.memory = os.open(f"/proc/{process}/mem", os.O_RDONLY)
        self.clocks: dict[int, int] = {}

    def open(self, thread: int) -> int:
        """The file that says what a thread sleeps in."""
        return os.open(f"/proc/{self.process}/task/{thread}/syscall", os.O_RDONLY)

    def look(self, syscall: int) -> int:
        """Index in :data:`SEEN`."""
        return SEEN.index(self.seen(os.pread(syscall, 256, 0).split()))

    def read_clocks(self) -> Iterator[tuple[int, int, int, int]]:
        """A row of :data:`CLOCK` for each thread there is."""
        there = {int(name) for name in os.listdir(f"/proc/{self.process}/task")}
        for gone in self.clocks.keys() - there:
            os.close(self.clocks.pop(gone))
        for new in there - self.clocks.keys():
            with suppress(OSError):
                self.clocks[new] = os.open(f"/proc/{self.process}/task/{new}/schedstat", os.O_RDONLY)
        for thread, clock in self.clocks.items():
            with suppress(OSError):  # it is gone
                cpu, core_wait, _ = map(int, os.pread(clock, 64, 0).split())
                yield time.monotonic_ns(), thread, cpu, core_wait

    def seen(self, words: list[bytes]) -> str:
        """What a line of ``/proc/PID/task/TID/syscall`` means."""
        if words[0] == b"running":
            return "ready"
        call = int(words[0])
        if call == -1:
            return "page-fault"
        first, second = int(words[1], 16), int(words[2], 16)
        match _CALLS.get(call, "unknown"):
            case "futex":
                return "gil" if first in self.gil else "lock"
            case "descriptor":
                return self.kind(first)
            case "poll":
                return self.kinds(self.polled(first, second))
            case "select":
                return "network" if first else "sleep"
            case "epoll":
                return "network"
            case kind:
                return kind

    def kind(self, descriptor: int) -> str:
        """What is behind a descriptor. A task's pipe leads to a child."""
        try:
            link = os.readlink(f"/proc/{self.process}/fd/{descriptor}")
        except OSError:
            return "unknown"
        if link.startswith("/"):
            return "file"
        return {"socket": "network", "pipe": "child-process"}.get(link.partition(":")[0], "unknown")

    def kinds(self, descriptors: Sequence[int]) -> str:
        """What is behind several of them."""
        found = {self.kind(descriptor) for descriptor in descriptors}
        return found.pop() if len(found) == 1 else "unknown"

    def polled(self, address: int, number: int) -> list[int]:
        """The descriptors of a call of poll: its array lies in the other process's memory."""
        try:
            array = os.pread(self.memory, 8 * min(number, 64), address)
        except OSError:
            return []
        return [descriptor for descriptor, _ in struct.iter_unpack("=ii", array)]


def look_on(eye: Eye, threads: Sequence[int], over: Callable[[], bool]) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Sample threads until it is over; rows of :data:`SAMPLE`, and of :data:`CLOCK`.

    One thread at a time: while this process is on a core, a thread that would have computed for an instant there and
    slept again is held up, so that a second look would find it ready, and not asleep.
    """
    chance = random.Random(0)
    syscalls = {thread: eye.open(thread) for thread in threads}
    samples: list[tuple[int, int, int]] = []
    clocks: list[tuple[int, int, int, int]] = []
    read = 0.0
    while not over():
        time.sleep(PERIOD / max(1, len(threads)) * chance.uniform(0.5, 1.5))
        if threads:
            thread = chance.choice(threads)
            with suppress(OSError):  # it is gone
                samples.append((time.monotonic_ns(), thread, eye.look(syscalls[thread])))
        if time.monotonic() - read > CLOCKS_PERIOD:
            try:
                clocks.extend(eye.read_clocks())
            except OSError:  # the process is gone
                break
            read = time.monotonic()
    return np.array(samples, dtype=SAMPLE), np.array(clocks, dtype=CLOCK)


def main() -> None:
    """Sample until the input ends, then keep what was seen."""
    process, low, high = map(int, sys.argv[1:4])
    # With all cores taken it would look only when somebody has let go of one.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    over = threading.Event()

    def until_told() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=until_told, daemon=True).start()
    eye = Eye(process, range(low, high))  # raises where it may not look
    print("ready", flush=True)
    samples, clocks = look_on(eye, [int(thread) for thread in sys.argv[5:]], over.is_set)
    np.savez(sys.argv[4], samples=samples, clocks=clocks)


# -- what the benchmark asks -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watched:
    """A process to be looked at, as :func:`watched` says in it."""

    process: int
    #: Where the GIL's futexes lie.
    gil: tuple[int, int]
    #: Threads that run tasks.
    tasks: tuple[int, ...]
    #: Threads that Python started; others are libraries'.
    pythons: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a process: rows of :data:`SAMPLE` and of :data:`CLOCK`."""

    samples: NDArray[np.void]
    clocks: NDArray[np.void]


@contextmanager
def judge(workers: Sequence[Watched]) -> Iterator[dict[int, Seen]]:
    """Look on at processes during the block; what was seen, by process id, is there when it is over."""
    found: dict[int, Seen] = {}
    with tempfile.TemporaryDirectory() as place:
        judges = {}
        for one in workers:
            arguments = (one.process, *one.gil, f"{place}/{one.process}.npz", *one.tasks)
            command = [sys.executable, "-m", "benchmarks.waiting_judge", *map(str, arguments)]
            judges[one.process] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            for process, started in judges.items():
                assert started.stdout is not None
                if started.stdout.readline() != "ready\n":
                    raise PermissionError(f"process {process} may not be looked at")
            yield found
        finally:
            for started in judges.values():
                started.communicate()
        for process in judges:
            with np.load(f"{place}/{process}.npz") as arrays:
                found[process] = Seen(arrays["samples"], arrays["clocks"])


def split(seen: dict[int, Seen], marks: Sequence[Mark], pythons: dict[int, set[int]], *, throttled: int = 0) -> Judged:
    """What marked time was spent on.

    Parameters
    ----------
    seen
        Process id to what was seen of it.
    marks
        Of all tasks, without overlap on a thread.
    pythons
        Process id to the threads that Python started.
    throttled
        Nanoseconds for which a control group's CPU limit held them: part of what the kernel calls waiting for a core.

    Returns
    -------
    Judged
        Causes in nanoseconds: ``core`` and ``throttled`` by the kernel's clocks; for tasks that slept at a futex in a
        part marked ``library``, ``library-threads`` while threads of libraries computed, and ``library-core`` while
        these waited for a core themselves; the rest as seen; ``unknown`` where nothing was.
    """
    wall = sum(mark.stop - mark.start for mark in marks)
    cpu, core = sum(mark.cpu for mark in marks), sum(mark.core_wait for mark in marks)
    throttled = min(core, throttled)
    causes: Counter[str] = Counter({"core": core - throttled, "throttled": throttled})
    asleep = 0
    for part in {mark.part for mark in marks}:
        of_part = [mark for mark in marks if mark.part == part]
        # The clocks are not read at the same instant.
        rest = max(0.0, sum(mark.stop - mark.start - mark.cpu - mark.core_wait for mark in of_part))
        found: Counter[str] = Counter()
        for process in {mark.process for mark in of_part}:
            own = [mark for mark in of_part if mark.process == process]
            found += _seen(seen[process], own, pythons[process])
        found.pop("ready", None)
        asleep += round(found.total())
        for cause, count in found.items():
            causes[cause] += rest * count / found.total()  # type: ignore[assignment]  # shares of nanoseconds
        if not found:
            causes["unknown"] += rest  # type: ignore[assignment]
    return Judged(wall, cpu, {cause: ns for cause, ns in causes.items() if ns}, asleep)


def _seen(seen: Seen, marks: Sequence[Mark], pythons: set[int]) -> Counter[str]:
    """How often the threads were seen doing what within the marks; a library's futexes divided."""
    found: Counter[str] = Counter()
    looks, at_library = [], []
    for thread in {mark.thread for mark in marks}:
        own = seen.samples[seen.samples["thread"] == thread]
        for mark in marks:
            if mark.thread != thread:
                continue
            first, last = np.searchsorted(own["at"], (mark.start, mark.stop))
            within = own[first:last]
            for what, count in zip(*np.unique(within["seen"], return_counts=True), strict=True):
                found[SEEN[what]] += int(count)
            if mark.library:
                looks.append(within["at"])
                at_library.append(within["at"][within["seen"] == SEEN.index("lock")])
    if at_library:
        times = np.concatenate(at_library)
        useful, ready = _library_shares(seen.clocks, np.concatenate(looks), times, marks, pythons)
        found["library-threads"] += useful * len(times)  # type: ignore[assignment]  # shares of samples
        found["library-core"] += ready * len(times)  # type: ignore[assignment]
        found["lock"] -= (useful + ready) * len(times)  # type: ignore[assignment]
    return +found


def _library_shares(
    clocks: NDArray[np.void],
    looks: NDArray[np.int64],
    waiting: NDArray[np.int64],
    marks: Sequence[Mark],
    pythons: set[int],
) -> tuple[float, float]:
    """Shares of the waiting, seen at these times, for which threads of libraries computed, and were ready to."""
    if not len(waiting) or not len(clocks):
        return 0.0, 0.0
    edges = np.arange(clocks["at"][0], clocks["at"][-1] + STEP, STEP)
    computed, ready = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for thread in set(clocks["thread"].tolist()) - pythons:
        own = clocks[clocks["thread"] == thread]
        computed += np.diff(np.interp(edges, own["at"], own["cpu"]))
        ready += np.diff(np.interp(edges, own["at"], own["core_wait"]))
    # Nanoseconds of marked time in each step, of which the share seen waiting did wait.
    marked = np.zeros(len(edges) - 1)
    for mark in marks:
        if mark.library:
            marked += np.diff(np.clip(edges, mark.start, mark.stop))
    counts = np.histogram(waiting, edges)[0]
    waited = marked * counts / np.maximum(np.histogram(looks, edges)[0], 1)
    if not waited.sum():
        return 0.0, 0.0
    useful = np.minimum(computed, waited)
    also = np.minimum(ready, waited - useful)
    return float(useful.sum() / waited.sum()), float(also.sum() / waited.sum())


def throttled_ns(process: int) -> int:
    """For which the control group of a process has been held by its CPU limit, summed over processors."""
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        folder = {"": "/sys/fs/cgroup", "cpu": "/sys/fs/cgroup/cpu", "cpu,cpuacct": "/sys/fs/cgroup/cpu,cpuacct"}
        if controllers in folder:
            with suppress(OSError):
                stat = dict(
                    row.split() for row in Path(f"{folder[controllers]}{path}/cpu.stat").read_text().splitlines()
                )
                if "throttled_time" in stat or "throttled_usec" in stat:
                    return int(stat.get("throttled_time", 1000 * int(stat.get("throttled_usec", 0))))
    return 0


if __name__ == "__main__":
    main()
