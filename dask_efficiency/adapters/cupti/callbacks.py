"""Where CUPTI gets its buffers and returns them to: two functions that need no Python, over memory that is never freed.

CUPTI calls them while it holds locks of its own. A callback in Python would wait there for the GIL; a thread that
launches a kernel while it holds the GIL (many extensions do) would wait for CUPTI: a deadlock. So they are machine
code, compiled from ``callbacks.c``, and work until the process ends, whatever becomes of Python.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: What a buffer is: free for CUPTI to take, in its hands, or brought back with records.
FREE, LENT, DONE = range(3)

#: The table's fields before its slots: count, size, base, refused, foreign. As ``struct pool``.
_COUNT, _SIZE, _BASE, _REFUSED, _FOREIGN, _SLOTS = range(6)


class _Code(NamedTuple):
    """Compiled functions, and where in them things are."""

    code: str
    request: int
    done: int
    #: Where the table's address is to be written.
    table: int


_CODE = {
    "x86_64": _Code(
        "488b0d9100000031c04989f848890231d2488d7928483b11732631c041b901000000f04c0fb10f750e488b4108480fafd048035110eb1248"
        "83c71048ffc2ebd5f048ff411831d231c0498910488906c3488b0d410000004889d0488b7108488b11482b4110480fafd64839d07206f048"
        "ff4120c331d248f7f64883c00248c1e0044801c14c89411048c7410802000000c30f1f80000000000000000000000000",
        request=0x00,
        done=0x50,
        table=0x98,
    ),
    "aarch64": _Code(
        "c30600105f0000f9020080d2630040f964a00091650040f9bf0002eb2801005463600091627c5fc842040091627c04c8a4ffff35020080d2"
        "040080d20a000014250080d286fc5fc8660000b585fc07c8a7ffff35df0000f1c1000054648c40a9820c029b020000f9240000f9c0035fd6"
        "8440009142040091e7ffff17e0020010010040f9238040a9420000cb200040f9607c009b1f0002ebe800005421800091207c5fc800040091"
        "207c02c8a2ffff35c0035fd64008c39a000800912010008b040800f9410080d20020009101fc9fc8f8ffff171f2003d50000000000000000",
        request=0x00,
        done=0x7C,
        table=0xD8,
    ),
}


class CallbacksUnavailable(OSError):
    """The processor is unknown, or the system does not let the callbacks run."""


class BufferPool:
    """Buffers lent to CUPTI, and the addresses of the two functions that lend them.

    Its memory stays the process's for ever: CUPTI may write to a buffer, and call, at any later time. A buffer that
    CUPTI has not touched takes none.

    Parameters
    ----------
    count, size
        How many buffers, and the bytes of each. Without a free one CUPTI drops records, and counts them. While work is
        queued without end a buffer comes back only when it is full and all in it has ended, so that small ones are
        known sooner: one of the default holds some 60 launches, and all of them 250,000.

    Raises
    ------
    CallbacksUnavailable
        On another processor than x86-64 or ARM64, or where the system lets no memory be executed.
    """

    def __init__(self, count: int = 4096, size: int = 16 * 2**10) -> None:
        code = _CODE.get(platform.machine()) if sys.platform == "linux" else None
        if code is None:
            raise CallbacksUnavailable(f"no callbacks for {platform.machine()} on {sys.platform}")
        self.size = size
        base = _map(count * size)
        table = _map(8 * (_SLOTS + 2 * count))
        self._table = _words(table, _SLOTS + 2 * count)
        self._table[[_COUNT, _SIZE, _BASE]] = count, size, base
        self._states = self._table[_SLOTS::2]
        self._written_off = np.zeros(count, bool)
        self._valid = self._table[_SLOTS + 1 :: 2]
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * (count * size)).from_address(base)).reshape(count, size)
        self._first_words = self._bytes.view(np.uint64)[:, 0]
        page = _load(code, table)
        #: Addresses, as ``cuptiActivityRegisterCallbacks`` takes them.
        self.request = page + code.request
        self.done = page + code.done

    @property
    def refused(self) -> int:
        """How often CUPTI asked and there was none."""
        return int(self._table[_REFUSED])

    @property
    def foreign(self) -> int:
        """Buffers that CUPTI brought here and that are somebody else's."""
        return int(self._table[_FOREIGN])

    def lent(self) -> NDArray[np.bool_]:
        """By number, whether CUPTI holds records in a buffer; not those that were written off."""
        held: NDArray[np.bool_] = (self._states == LENT) & (self._first_words != 0) & ~self._written_off
        return held

    def free(self) -> NDArray[np.bool_]:
        """By number, whether no record can be in a buffer."""
        empty: NDArray[np.bool_] = (self._states == FREE) | ((self._states == LENT) & (self._first_words == 0))
        return empty

    def write_off(self) -> None:
        """Wait no longer for the buffers that CUPTI holds now: another client's callbacks may have got them."""
        self._written_off |= self._states == LENT

    def filled(self) -> list[tuple[int, NDArray[np.uint8]]]:
        """The buffers that were brought back, each with its number and its valid bytes, in place."""
        with _FENCE:  # what follows is not read before the states are
            done = np.flatnonzero(self._states == DONE)
        return [(int(i), self._bytes[i, : min(int(self._valid[i]), self.size)]) for i in done]

    def release(self, number: int) -> None:
        """Let CUPTI have a buffer again; its bytes must not be used any more."""
        self._first_words[number] = 0
        self._written_off[number] = False
        with _FENCE:
            self._states[number] = FREE


#: Taking and releasing any lock keeps the processor from reordering.
_FENCE = threading.Lock()

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _map(nbytes: int) -> int:
    """Memory that no object owns: not even the interpreter's end gives it back."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise CallbacksUnavailable(ctypes.get_errno(), f"no {nbytes} bytes of memory for CUPTI's buffers")
    return int(address)


def _words(address: int, count: int) -> NDArray[np.uint64]:
    return np.ctypeslib.as_array((ctypes.c_uint64 * count).from_address(address))


def _load(code: _Code, table: int) -> int:
    """The address of a page with the functions, which is written before it may be executed and never again."""
    content = bytes.fromhex(code.code)
    page = _map(mmap.PAGESIZE)
    ctypes.memmove(page, content, len(content))
    _words(page + code.table, 1)[0] = table
    if _libc.mprotect(page, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
        raise CallbacksUnavailable(ctypes.get_errno(), "the system lets no memory be executed that was written")
    return page
