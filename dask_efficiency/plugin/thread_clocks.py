"""HeldReader and ThreadFiles: Linux's data on the threads of this process, read with the GIL held."""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import suppress
from typing import NamedTuple

_TASKS = "/proc/self/task"
#: Bytes that are read of a file at most; ``stat`` is the longest.
MAX_BYTES = 512


class ThreadClocks(NamedTuple):
    """Clocks of a thread since its start; exact while it sleeps, as of the kernel's last tick while it runs."""

    #: Nanoseconds on a CPU.
    cpu: int
    #: Nanoseconds in which it was ready to run and waited for a core.
    core: int
    #: Times that it was given a CPU; unchanged if it has slept or waited all the time.
    turns: int


class HeldReader:
    """Reads files, links and this process's memory with the GIL held, which :func:`os.pread` would release.

    So the content, with the frames of the threads, is of one instant. Files in ``/proc`` do not block. OSError,
    AttributeError or TypeError where the system has no such functions or files.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        # Of 64-bit programs only, whose offsets have 64 bits.
        library = ctypes.PyDLL(None)
        self._pread = library.pread
        self._pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
        self._pread.restype = ctypes.c_ssize_t
        self._readlink = library.readlink
        self._readlink.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
        self._readlink.restype = ctypes.c_ssize_t
        self._max_bytes = max_bytes
        self._buffer = ctypes.create_string_buffer(max_bytes)
        self._at = ctypes.addressof(self._buffer)
        # Of this process, and of no child that is forked from it.
        self._memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Read no memory any more."""
        memory, self._memory = self._memory, -1
        if memory >= 0:
            os.close(memory)

    def read(self, descriptor: int, offset: int = 0, nbytes: int = MAX_BYTES) -> bytes:
        """Content of a file; empty if it cannot be read."""
        n = self._pread(descriptor, self._at, min(nbytes, self._max_bytes), offset)
        return ctypes.string_at(self._at, n) if n > 0 else b""

    def memory(self, address: int, nbytes: int) -> bytes:
        """Memory of this process; empty at an invalid address, where other ways of reading would crash."""
        if self._memory < 0 or not 0 < address < 1 << 62:
            return b""
        return self.read(self._memory, address, nbytes)

    def link(self, descriptor: int) -> str:
        """Target of a descriptor of this process, such as ``socket:[12]`` or ``/tmp/x``; "" if there is none."""
        n = self._readlink(b"/proc/self/fd/%d" % descriptor, self._at, MAX_BYTES)
        return ctypes.string_at(self._at, n).decode(errors="replace") if n > 0 else ""


class ThreadFiles:
    """Open descriptors of one thread's files; OSError if it has ended, or the system has no such files or hides them.

    They stay bound to this thread: after its end they read as empty, even if its id is reused.
    """

    def __init__(self, reader: HeldReader, native_id: int) -> None:
        self._reader, self.native_id = reader, native_id
        self._kept: dict[str, int] = {}
        try:
            self._schedstat = self._open("schedstat")
            self._syscall = self._open("syscall")
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Give the descriptors back; safe to call twice."""
        kept, self._kept = self._kept, {}
        self._schedstat = self._syscall = -1
        for descriptor in kept.values():
            with suppress(OSError):
                os.close(descriptor)

    def clocks(self) -> ThreadClocks | None:
        """Clocks of the thread; None once it has ended."""
        words = self._reader.read(self._schedstat).split()
        return ThreadClocks(int(words[0]), int(words[1]), int(words[2])) if len(words) == 3 else None

    def syscall(self) -> bytes:
        """``running``, or number and arguments of the call in which it sleeps; empty once it has ended."""
        return self._reader.read(self._syscall)

    def wait_channel(self) -> str:
        """Kernel function in which it sleeps; "" if unknown."""
        name = self._read("wchan").decode(errors="replace")
        return "" if name == "0" else name

    def is_uninterruptible(self) -> bool:
        """True if it sleeps uninterruptibly, as for a disk."""
        return self._read("stat").rpartition(b") ")[2][:1] == b"D"

    def _read(self, name: str) -> bytes:
        try:
            return self._reader.read(self._kept[name] if name in self._kept else self._open(name))
        except OSError:
            return b""

    def _open(self, name: str) -> int:
        path = f"{_TASKS}/{self.native_id}/{name}"
        descriptor = self._kept[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return descriptor


def cpu_clock(native_id: int) -> int:
    """CPU nanoseconds of a thread of this process; 0 if it has ended, where the clock of pthreads would crash."""
    try:
        # MAKE_THREAD_CPUCLOCK(native_id, CPUCLOCK_SCHED) of the kernel's linux/posix-timers.h.
        return time.clock_gettime_ns((~native_id << 3) | 6)
    except OSError:
        return 0
