"""Buffers for CUPTI: two compiled callbacks that lend them and take them back, over memory that is never freed.

CUPTI calls them while it holds its own locks. A callback in Python would wait there for the GIL, while a thread that
launches a kernel with the GIL held (many extensions do) would wait for CUPTI: a deadlock. So they are written in C, in
``callbacks.c``, and work until the process ends, even after Python has shut down.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.cupti.build import LIBRARY_NAME

#: Compiled ``callbacks.c``; missing where the installation had no C compiler.
LIBRARY = Path(__file__).with_name(LIBRARY_NAME)
#: States of a buffer: free, lent to CUPTI, or returned with records.
FREE, LENT, DONE = range(3)
#: Fields of the table before its slots, as in ``struct pool``.
_COUNT, _SIZE, _BASE, _REFUSED, _FOREIGN, _SLOTS = range(6)


class CallbacksUnavailable(OSError):
    """The callbacks have not been compiled, or cannot be loaded; the text gives the reason, for a report."""


class BufferPool:
    """Buffers lent to CUPTI, and the two functions that lend them.

    The memory is never freed, as CUPTI may write to a buffer and call the functions at any later time. A buffer that
    CUPTI has not written to takes no memory.

    If no buffer is free, CUPTI drops records and counts them. While work is queued without end, CUPTI returns a buffer
    only when it is full and everything in it has ended, so records in small buffers are known sooner. A buffer of the
    default size, in bytes, holds about 60 launches, and all together 250,000.
    """

    def __init__(self, count: int = 4096, size: int = 16 * 2**10) -> None:
        self._library = _compiled(LIBRARY)
        self.size = size
        base = _map(count * size)
        words = _SLOTS + 2 * count
        self._address = _map(8 * words)
        self._table = np.ctypeslib.as_array((ctypes.c_uint64 * words).from_address(self._address))
        self._table[[_COUNT, _SIZE, _BASE]] = count, size, base
        self._states = self._table[_SLOTS::2]
        self._written_off = np.zeros(count, bool)
        self._valid = self._table[_SLOTS + 1 :: 2]
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * (count * size)).from_address(base)).reshape(count, size)
        self._first_words = self._bytes.view(np.uint64)[:, 0]

    def callbacks(self) -> tuple[int, int]:
        """Addresses for ``cuptiActivityRegisterCallbacks``: the process's one pair of functions, for this pool now."""
        self._library.serve_pool(ctypes.c_void_p(self._address))
        request = ctypes.cast(self._library.request_buffer, ctypes.c_void_p).value
        complete = ctypes.cast(self._library.return_buffer, ctypes.c_void_p).value
        assert request is not None
        assert complete is not None
        return request, complete

    @property
    def refused(self) -> int:
        """Number of requests of CUPTI while no buffer was free."""
        return int(self._table[_REFUSED])

    @property
    def foreign(self) -> int:
        """Number of returned buffers that are another pool's."""
        return int(self._table[_FOREIGN])

    def lent(self) -> NDArray[np.bool_]:
        """By number: CUPTI has the buffer, with records in it, and it was not written off."""
        held: NDArray[np.bool_] = (self._states == LENT) & (self._first_words != 0) & ~self._written_off
        return held

    def free(self) -> NDArray[np.bool_]:
        """By number: the buffer has no records in it."""
        empty: NDArray[np.bool_] = (self._states == FREE) | ((self._states == LENT) & (self._first_words == 0))
        return empty

    def write_off(self) -> None:
        """Stop waiting for the buffers that CUPTI has now, as it may return them to another client."""
        self._written_off |= self._states == LENT

    def filled(self) -> list[tuple[int, NDArray[np.uint8]]]:
        """Buffers that CUPTI returned: number, and a view of the valid bytes."""
        with _FENCE:  # The states are read before the sizes and the bytes.
            done = np.flatnonzero(self._states == DONE)
        return [(int(i), self._bytes[i, : min(int(self._valid[i]), self.size)]) for i in done]

    def release(self, number: int) -> None:
        """Let CUPTI have a buffer again. Its bytes must not be used any more."""
        self._first_words[number] = 0
        self._written_off[number] = False
        with _FENCE:
            self._states[number] = FREE


#: Taking and releasing a lock keeps the processor from reordering reads and writes.
_FENCE = threading.Lock()

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


@cache
def _compiled(library: Path) -> ctypes.CDLL:
    if not library.exists():
        raise CallbacksUnavailable(
            f"dask-efficiency was installed without {library.name}; where Linux has a C compiler, "
            "`python -m dask_efficiency.gpu.cupti` makes it"
        )
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise CallbacksUnavailable(f"{library.name} cannot be loaded: {error}") from error


def _map(nbytes: int) -> int:
    """Memory that no object owns, so that it stays while the interpreter ends."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise CallbacksUnavailable(ctypes.get_errno(), f"no {nbytes} bytes of memory for CUPTI's buffers")
    return int(address)
