"""Finds out at which addresses in memory a thread sleeps that waits for the GIL."""

from __future__ import annotations

import _thread
import ctypes
import sys
import threading
import time
from collections.abc import Callable

from dask_efficiency.plugin.worker.thread_clocks import HeldReader, ThreadFiles

#: Nanoseconds for which the GIL is held at once to see another thread wait for it; half of Python's switch interval
#: of 5 ms is enough for that thread to begin to wait.
HOLD_NS = 4_000_000

#: How often that is tried.
TRIES = 25

#: The runtime's static data lies in so many bytes from ``_PyRuntime`` on: seen were offsets of 0x1b0 on Python 3.10 and
#: 3.11, 0x12ec0 on 3.12 and 0x177b0 on 3.13.
_RUNTIME_BYTES = 1 << 20

#: The GIL's two mutexes and two condition variables lie side by side, in some 180 bytes on 64-bit Linux.
_GIL_BYTES = 256

_FUTEX = {b"202", b"98"}

_known: Callable[[int], bool] | None = None


def has_gil() -> bool:
    """Whether this Python has one."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or bool(is_enabled())


def find_gil(reader: HeldReader) -> Callable[[int], bool] | None:
    """Whether a futex at an address is the GIL's, as a function; None where that cannot be found out.

    A thread is made to contend for the GIL, and looked at while this one holds it: it takes some milliseconds, once in
    each process.
    """
    global _known
    if not has_gil():
        return lambda address: False
    if _known is None:
        seen = _addresses(reader)
        if seen:
            low, high = min(seen) - _GIL_BYTES, max(seen) + _GIL_BYTES
            _known = lambda address: low < address < high  # noqa: E731
    return _known


def _addresses(reader: HeldReader) -> set[int]:
    """Where in the runtime's data a thread sleeps that wants the GIL."""
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
        files = ThreadFiles(reader, thread.native_id)
        try:
            for _ in range(TRIES):
                time.sleep(0.0001)  # lets it have the GIL, and come to sleep
                if go.locked():
                    go.release()
                until = time.monotonic_ns() + HOLD_NS
                while not seen and time.monotonic_ns() < until:
                    words = files.syscall().split()
                    if words and words[0] in _FUTEX and 0 <= int(words[1], 16) - runtime < _RUNTIME_BYTES:
                        seen.add(int(words[1], 16))
                if seen:
                    break
        finally:
            files.close()
    finally:
        stop = True
        if go.locked():
            go.release()
    return seen
