"""WaitStates: what a thread waits for, from the system call in which it sleeps; and the address of the GIL."""

from __future__ import annotations

import _thread
import ctypes
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing

from dask_efficiency.plugin.stacks import has_gil
from dask_efficiency.plugin.thread_clocks import HeldReader, ThreadFiles

RUNNING = "running"
GIL, STOPPED, LOCK, SLEEP = "gil", "stopped", "lock", "sleep"
FILE, NETWORK, CHILD, UNKNOWN = "file", "network", "child-process", "unknown"
#: Asleep, but not as Python sleeps; no cause yet: C code that tries again and again, as databases do at a lock.
POLLS = "polls"
#: Descriptors of one poll or select that are read. A guess: more are servers.
MAX_DESCRIPTORS = 32
#: Kinds of calls: a cause, or what to read next.
_FUTEX, _DESCRIPTOR, _POLL, _SELECT, _MEMORY = "a futex", "a descriptor", "poll", "select", "the memory map"
_KINDS: Mapping[str, str] = {
    kind_name: kind
    for kind, names in {
        _FUTEX: "futex",
        _DESCRIPTOR: "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 splice sendfile",
        _POLL: "poll ppoll",
        _SELECT: "select pselect6",
        _MEMORY: "mmap munmap mprotect mremap madvise brk",
        LOCK: "futex_waitv futex_wait flock fcntl semop semtimedop",
        SLEEP: "nanosleep clock_nanosleep",
        NETWORK: "connect accept accept4 sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg"
        " epoll_wait epoll_pwait epoll_pwait2",
        CHILD: "wait4 waitid clone clone3 vfork",
        FILE: "open openat openat2 creat close stat lstat fstat newfstatat statx statfs fstatfs access faccessat"
        " faccessat2 getdents getdents64 readlink readlinkat rename renameat renameat2 mkdir mkdirat rmdir unlink"
        " unlinkat link linkat symlink truncate ftruncate fallocate fadvise64 fsync fdatasync sync syncfs"
        " sync_file_range msync copy_file_range io_getevents io_uring_enter",
    }.items()
    for kind_name in names.split()
}
#: The kernel's arch/x86/entry/syscalls/syscall_64.tbl.
_X86_64 = """
read 0 write 1 open 2 close 3 stat 4 fstat 5 lstat 6 poll 7 mmap 9 mprotect 10 munmap 11 brk 12 pread64 17 pwrite64 18
readv 19 writev 20 access 21 select 23 mremap 25 msync 26 madvise 28 nanosleep 35 sendfile 40 connect 42 accept 43
sendto 44 recvfrom 45 sendmsg 46 recvmsg 47 clone 56 vfork 58 wait4 61 semop 65 fcntl 72 flock 73 fsync 74 fdatasync 75
truncate 76 ftruncate 77 getdents 78 rename 82 mkdir 83 rmdir 84 creat 85 link 86 unlink 87 symlink 88 readlink 89
statfs 137 fstatfs 138 sync 162 futex 202 io_getevents 208 getdents64 217 semtimedop 220 fadvise64 221
clock_nanosleep 230 epoll_wait 232 waitid 247 openat 257 mkdirat 258 newfstatat 262 unlinkat 263 renameat 264
linkat 265 readlinkat 267 faccessat 269 pselect6 270 ppoll 271 splice 275 sync_file_range 277 epoll_pwait 281
fallocate 285 accept4 288 preadv 295 pwritev 296 recvmmsg 299 syncfs 306 sendmmsg 307 renameat2 316
copy_file_range 326 preadv2 327 pwritev2 328 statx 332
"""
#: The kernel's include/uapi/asm-generic/unistd.h.
_AARCH64 = """
io_getevents 4 epoll_pwait 22 fcntl 25 flock 32 mkdirat 34 unlinkat 35 linkat 37 renameat 38 statfs 43 fstatfs 44
truncate 45 ftruncate 46 fallocate 47 faccessat 48 openat 56 close 57 getdents64 61 read 63 write 64 readv 65 writev 66
pread64 67 pwrite64 68 preadv 69 pwritev 70 sendfile 71 pselect6 72 ppoll 73 splice 76 readlinkat 78 newfstatat 79
fstat 80 sync 81 fsync 82 fdatasync 83 sync_file_range 84 waitid 95 futex 98 nanosleep 101 clock_nanosleep 115
semtimedop 192 semop 193 accept 202 connect 203 sendto 206 recvfrom 207 sendmsg 211 recvmsg 212 brk 214 munmap 215
mremap 216 clone 220 mmap 222 fadvise64 223 mprotect 226 msync 227 madvise 233 accept4 242 recvmmsg 243 wait4 260
syncfs 267 sendmmsg 269 renameat2 276 copy_file_range 285 preadv2 286 pwritev2 287 statx 291
"""
#: Newer calls have one number on every machine.
_BOTH = "io_uring_enter 426 clone3 435 openat2 437 faccessat2 439 epoll_pwait2 441 futex_waitv 449 futex_wait 455 "


def _numbers(table: str) -> dict[int, str]:
    words = (table + _BOTH).split()
    return {int(number): name for name, number in zip(words[::2], words[1::2], strict=True)}


#: Names of calls by number, by machine.
CALLS: Mapping[str, Mapping[int, str]] = {"x86_64": _numbers(_X86_64), "aarch64": _numbers(_AARCH64)}


#: CLOCK_MONOTONIC and TIMER_ABSTIME, the first arguments of the call by which Python's ``time.sleep`` sleeps.
_UNTIL = [1, 1]


class WaitStates:
    """Names the causes of threads' waits on a machine of CALLS; futexes are unknown if the GIL's are."""

    def __init__(self, machine: str, reader: HeldReader, *, is_gil: Callable[[int], bool] | None) -> None:
        self._kinds = {number: _KINDS[name] for number, name in CALLS[machine].items()}
        self._sleep = next(number for number, name in CALLS[machine].items() if name == "clock_nanosleep")
        self._link = reader.link
        self._memory = reader.memory
        self._is_gil = is_gil

    def state(self, syscall: bytes, sleeper: ThreadFiles) -> str:
        """RUNNING, or the cause for which a thread waits, by its file ``syscall`` and further reading."""
        words = syscall.split()
        if not words:
            return UNKNOWN
        if words[0] == b"running":
            return RUNNING
        number = int(words[0])
        if number < 0:  # it sleeps outside any call: for a page of memory
            return self._page(sleeper)
        kind = self._kinds.get(number, UNKNOWN)
        if kind is _MEMORY:
            return self._page(sleeper)
        if kind is FILE:
            return self._file(sleeper)
        arguments = [int(word, 16) for word in words[1:7]]
        if kind is _FUTEX:
            if self._is_gil is None:
                return UNKNOWN
            return GIL if self._is_gil(arguments[0]) else LOCK
        if kind is _DESCRIPTOR:
            return self._descriptor(arguments[0], sleeper)
        if kind is _POLL:
            return self._any_of(self._polled(*arguments[:2]), arguments[1])
        if kind is _SELECT:
            return self._any_of(self._selected(*arguments[:4]), arguments[0])
        if kind is SLEEP and (number != self._sleep or arguments[:2] != _UNTIL):
            return POLLS
        return kind

    def _descriptor(self, descriptor: int, sleeper: ThreadFiles) -> str:
        cause = _linked(self._link(descriptor))
        if cause is CHILD and descriptor <= 2:  # its own output, which nobody reads
            return UNKNOWN
        return self._file(sleeper) if cause is FILE else cause

    def _file(self, sleeper: ThreadFiles) -> str:
        """FILE, or CHILD for a named pipe."""
        channel = sleeper.wait_channel()
        return CHILD if "pipe" in channel or "fifo" in channel or channel == "wait_for_partner" else FILE

    def _page(self, sleeper: ThreadFiles) -> str:
        channel = sleeper.wait_channel()
        if channel:
            if "rwsem" in channel or "mmap" in channel:  # another thread changes the memory map
                return LOCK
            words = ("page", "folio", "io_schedule", "filemap", "swap", "fault", "wait_on_bit", "blk")
            return FILE if any(word in channel for word in words) else UNKNOWN
        return FILE if sleeper.is_uninterruptible() else UNKNOWN

    def _any_of(self, descriptors: list[int] | None, count: int) -> str:
        """Cause of a thread that waits for any of these descriptors; None if they are unknown."""
        if not count:
            return SLEEP
        if not descriptors:
            return NETWORK
        causes = {_linked(self._link(descriptor)) for descriptor in descriptors}
        return next((cause for cause in (NETWORK, CHILD, LOCK, SLEEP) if cause in causes), UNKNOWN)

    def _polled(self, address: int, count: int) -> list[int] | None:
        # struct pollfd: int, short, short.
        data = self._memory(address, 8 * min(count, MAX_DESCRIPTORS))
        return [fd for fd, _, _ in struct.iter_unpack("=ihh", data[: len(data) // 8 * 8]) if fd >= 0] or None

    def _selected(self, count: int, *sets: int) -> list[int] | None:
        found: set[int] = set()
        for address in sets:
            if address:
                bits = int.from_bytes(self._memory(address, (min(count, 1024) + 7) // 8), "little")
                found.update(fd for fd in range(min(count, 1024)) if bits >> fd & 1)
        return sorted(found)[:MAX_DESCRIPTORS] or None


def _linked(link: str) -> str:
    """Cause of a wait for a descriptor with this target."""
    if link.startswith("socket:"):
        return NETWORK
    if link.startswith("pipe:") or "[pidfd]" in link:
        return CHILD
    if "[eventfd]" in link:
        return LOCK
    if "[timerfd]" in link:
        return SLEEP
    if not link.startswith("/") or link.startswith("/dev/"):  # a terminal, a GPU
        return UNKNOWN
    return FILE


#: Nanoseconds for which the GIL is held to see another thread wait for it; below Python's switch interval of 5 ms, of
#: which a half is enough for that thread to begin waiting.
HOLD_NS = 4_000_000
#: Tries to see it. A guess: the first mostly succeeds.
TRIES = 25
#: Bytes from ``_PyRuntime`` on that may have the GIL: observed offsets are 0x1b0 on Python 3.10 and 3.11, 0x12ec0 on
#: 3.12 and 0x177b0 on 3.13.
_RUNTIME_BYTES = 1 << 20
#: Bytes around a seen address that belong to the GIL: its two mutexes and two condition variables take some 180 bytes
#: on 64-bit Linux.
_GIL_BYTES = 256

_FUTEX_CALLS = {b"202", b"98"}

_known: Callable[[int], bool] | None = None
#: Searches that may fail in one process, as each holds the GIL for a tenth of a second. A guess.
MAX_SEARCHES = 3
_searches = 0


def find_gil(reader: HeldReader) -> Callable[[int], bool] | None:
    """Make a function that is True for the address of a futex of the GIL; None if the address cannot be found.

    A thread is made to contend for the GIL, and read while this one holds it: some milliseconds, once in each process.
    """
    global _known, _searches
    if not has_gil():
        return lambda address: False
    if _known is None and _searches < MAX_SEARCHES:
        _searches += 1
        seen = _addresses(reader)
        if seen:
            low, high = min(seen) - _GIL_BYTES, max(seen) + _GIL_BYTES
            _known = lambda address: low < address < high  # noqa: E731
    return _known


def _addresses(reader: HeldReader) -> set[int]:
    """Addresses in the runtime's data at which a thread that wants the GIL sleeps."""
    runtime = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    go = _thread.allocate_lock()
    go.acquire()
    stop = False

    def contend() -> None:
        while not stop:
            go.acquire()  # sleeps; once it is released, waits for the GIL

    thread = threading.Thread(target=contend, name="dask-efficiency-gil", daemon=True)
    thread.start()
    seen: set[int] = set()
    try:
        assert thread.native_id is not None
        with closing(ThreadFiles(reader, thread.native_id)) as files:
            for _ in range(TRIES):
                time.sleep(0.0001)  # lets it take the GIL, and fall asleep
                if go.locked():
                    go.release()
                until = time.monotonic_ns() + HOLD_NS
                while not seen and time.monotonic_ns() < until:
                    words = files.syscall().split()
                    if words and words[0] in _FUTEX_CALLS and 0 <= int(words[1], 16) - runtime < _RUNTIME_BYTES:
                        seen.add(int(words[1], 16))
                if seen:
                    break
    finally:
        stop = True
        if go.locked():
            go.release()
    return seen
