"""Decodes the activity records of each version of CUPTI into arrays of operations and calls, with names of kernels."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu import calls as does
from dask_efficiency.gpu.meter import BEGINS_GRAPH, CALL, COPY, ENDS_GRAPH, FILL, KERNEL, OPERATION, RETURNS

#: ``CUpti_ActivityKind``, in the first four bytes of every record; the same in all versions.
MEMCPY, MEMSET, DRIVER, RUNTIME, CONCURRENT_KERNEL = 1, 2, 4, 5, 10
#: Offsets in bytes. ``CUpti_ActivityKernel9`` (CUDA 12.0) to ``CUpti_ActivityKernel13`` (13.4) only grew at the end, as
#: did memcpy and memset: tests/gpu/cupti/test_decode.py has the figures of the headers of CUDA 12.1 to 13.5.
KERNEL_OFFSETS = {"start": 16, "end": 24, "deviceId": 40, "streamId": 48, "correlationId": 92, "name": 104}
COPY_OFFSETS = {"start": 16, "end": 24, "deviceId": 32, "streamId": 40, "correlationId": 44}
CALL_OFFSETS = {"cbid": 4, "start": 8, "end": 16, "threadId": 28, "correlationId": 32, "returnValue": 36}


class RecordLayout(NamedTuple):
    """Records of one version of CUPTI; the offsets above hold for all versions."""

    kernel_record: str
    #: Bytes of a record, by kind.
    sizes: Mapping[int, int]


def _layout(record: int, *, kernel: int, memcpy: int = 96, memset: int = 88) -> RecordLayout:
    sizes = {MEMCPY: memcpy, MEMSET: memset, DRIVER: 40, RUNTIME: 40, CONCURRENT_KERNEL: kernel}
    return RecordLayout(f"CUpti_ActivityKernel{record}", sizes)


#: By ``CUPTI_API_VERSION``, which counted releases up to CUDA 12.9. 18 is CUDA 11.8 as well as 12.1: kernels of 11.8
#: have the same offsets in records that are 8 bytes shorter, so sizes measured in a buffer take precedence.
_COUNTED: Mapping[int, RecordLayout] = {
    **dict.fromkeys((18, 20, 21, 22, 23, 24), _layout(9, kernel=208, memcpy=88)),
    **dict.fromkeys((26, 27, 28), _layout(9, kernel=208)),
}
#: From CUDA 13.0 on it is major, minor and patch, two digits each. Patches have not changed a layout.
_DATED: Mapping[int, RecordLayout] = {
    1300: _layout(10, kernel=216),
    **dict.fromkeys((1301, 1302), _layout(11, kernel=224)),
    1303: _layout(12, kernel=232),
    **dict.fromkeys((1304, 1305), _layout(13, kernel=248, memcpy=112, memset=104)),
}


def layout_for(version: int) -> RecordLayout | None:
    """Layout of a version from ``cuptiGetVersion``: 18 is CUDA 12.1, 28 the first update of 12.9, 130001 that of 13.0.

    None for a version whose header has not been checked: a guess could take a kernel's grid for its time.
    """
    return _COUNTED.get(version) or _DATED.get(version // 100)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Content of a buffer, with times of CUPTI's clock."""

    #: ``name`` is an index into ``pointers``.
    operations: NDArray[np.void]
    calls: NDArray[np.void]
    #: Addresses of kernel names, each once.
    pointers: NDArray[np.uint64]
    #: Records without times, plus one if the rest of the buffer could not be read.
    dropped: int = 0


def decode(
    content: bytes | NDArray[np.uint8], layout: RecordLayout, sizes: Mapping[int, int] | None = None, *, waiting: int
) -> Decoded:
    """Read records one after another, as CUPTI wrote them; one of unknown size ends the reading, and counts as dropped.

    ``sizes`` in bytes by kind, measured with ``cuptiActivityGetNextRecord``, take precedence over the layout, and may
    have kinds that it lacks. ``waiting`` is the effect of waiting calls on their threads, BLOCKS or SPINS: the device's
    schedule flag.
    """
    words = np.frombuffer(content, np.uint32, count=len(content) // 4)
    at, kinds, lost = _walk(words, {**layout.sizes, **(sizes or {})})
    kernels, names = _operations(words, at[kinds == CONCURRENT_KERNEL], KERNEL_OFFSETS, KERNEL)
    copies, _ = _operations(words, at[kinds == MEMCPY], COPY_OFFSETS, COPY)
    fills, _ = _operations(words, at[kinds == MEMSET], COPY_OFFSETS, FILL)
    runtime = _calls(words, at[kinds == RUNTIME], does.RUNTIME_TABLE, waiting)
    driver = _calls(words, at[kinds == DRIVER], does.DRIVER_TABLE, waiting)
    operations = np.concatenate([kernels, copies, fills])
    timed = (operations["end"] >= operations["start"]) & (operations["start"] > 0)
    lost += len(operations) - int(timed.sum())
    return Decoded(operations[timed], np.concatenate([runtime, driver]), names, lost)


def _walk(words: NDArray[np.uint32], sizes: Mapping[int, int]) -> tuple[NDArray[np.int64], NDArray[np.uint32], int]:
    """Start of each record, in words; its kind; and 1 if a rest could not be read, else 0."""
    steps = {kind: size // 4 for kind, size in sizes.items() if size > 0 and size % 8 == 0}
    begins: list[int] = []
    kind_at, position, end, lost = words.data, 0, len(words), 0
    try:
        # Every step is at least two words long, so the loop ends.
        while position < end:
            step = steps[kind_at[position]]
            begins.append(position)
            position += step
    except KeyError:
        lost = 1
    if position > end:  # the last record is cut off
        begins.pop()
        lost = 1
    at = np.array(begins, np.int64)
    return at, words[at], lost


def _operations(
    words: NDArray[np.uint32], at: NDArray[np.int64], offsets: Mapping[str, int], activity: int
) -> tuple[NDArray[np.void], NDArray[np.uint64]]:
    operations = np.empty(len(at), OPERATION)
    for name in ("start", "end"):
        operations[name] = _long(words, at, offsets[name])
    for name in ("device", "stream", "correlation"):
        operations[name] = words[at + offsets[f"{name}Id"] // 4]
    operations["activity"], operations["name"] = activity, -1
    if "name" not in offsets:
        return operations, np.empty(0, np.uint64)
    pointers, operations["name"] = np.unique(_long(words, at, offsets["name"]), return_inverse=True)
    return operations, pointers


def _calls(
    words: NDArray[np.uint32], at: NDArray[np.int64], table: NDArray[np.uint8], waiting: int
) -> NDArray[np.void]:
    numbers = words[at + CALL_OFFSETS["cbid"] // 4]
    what = table[np.minimum(numbers, len(table) - 1)]
    start = _long(words, at, CALL_OFFSETS["start"]).view(np.int64)
    end = _long(words, at, CALL_OFFSETS["end"]).view(np.int64)
    failed = words[at + CALL_OFFSETS["returnValue"] // 4] != 0
    # CUPTI writes 0 where it has no time.
    keep = (what > 0) & (start > 0) & (end >= start) & ~(failed & (what == does.BEGINS_GRAPH))
    at, what, start, end, failed = at[keep], what[keep], start[keep], end[keep], failed[keep]
    effects = np.array([RETURNS, RETURNS, waiting, waiting, BEGINS_GRAPH, ENDS_GRAPH], np.uint8)
    calls = np.empty(len(at), CALL)
    calls["start"], calls["end"] = start, end
    calls["thread"] = words[at + CALL_OFFSETS["threadId"] // 4]
    calls["correlation"] = words[at + CALL_OFFSETS["correlationId"] // 4]
    calls["correlation"][failed | (what > does.COPIES)] = 0
    calls["waits"] = effects[what]
    calls["waits"][(what == does.ASKS) & (end - start >= does.LONG)] = waiting
    return calls


def _long(words: NDArray[np.uint32], at: NDArray[np.int64], offset: int) -> NDArray[np.uint64]:
    """64-bit field at an offset that is a multiple of 8, as are the records."""
    return words[: len(words) // 2 * 2].view(np.uint64)[(at + offset // 4) // 2]


#: Characters of a kernel name; longer ones are cut.
MAX_LENGTH = 120

_NAMESPACE = re.compile(r"(?:\w+|\(anonymous namespace\)|\{lambda[^{}]*\}|<unnamed>)::")
_LITERAL = re.compile(r"\((?:unsigned )?(?:int|long|bool|char|short)\)(-?\w+)")


class KernelNames:
    """Reads, demangles and shortens names of kernels, and caches the last few thousand."""

    def __init__(self) -> None:
        self._demangle = _demangler()
        self.readable = lru_cache(4096)(self._readable)

    def at(self, addresses: Sequence[int]) -> list[str]:
        """Names at addresses from CUPTI. Read each time, as an address may be reused."""
        return [self.readable(ctypes.string_at(int(address))) if address else "" for address in addresses]

    def _readable(self, mangled: bytes) -> str:
        return shortened(self._demangle(mangled) if mangled.startswith(b"_Z") else mangled.decode(errors="replace"))


def shortened(name: str) -> str:
    """Shorten a demangled name: no return type, namespaces and parameters, at most :data:`MAX_LENGTH` characters.

    Template arguments stay, as they distinguish the kernels of a library.
    """
    name = name.removeprefix("void ").replace(" >", ">")
    name = name[: _parameters(name)]
    name = _LITERAL.sub(r"\1", _NAMESPACE.sub("", name)).strip()
    return name if len(name) <= MAX_LENGTH else name[: MAX_LENGTH - 1] + "…"


def _parameters(name: str) -> int:
    """Index of the parameters of a function: the last parenthesis outside template arguments."""
    if not name.endswith(")") or name.endswith("(anonymous namespace)"):
        return len(name)
    depth = 0
    for at in range(len(name) - 1, -1, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            return at
    return len(name)


def _demangler() -> Callable[[bytes], str]:
    """Demangler of the C++ library, which torch brings along; without the library, names stay as they are."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return lambda mangled: mangled.decode(errors="replace")
    demangle.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]

    def demangled(mangled: bytes) -> str:
        status = ctypes.c_int()
        address = demangle(mangled, None, None, ctypes.byref(status))
        if not address:
            return mangled.decode(errors="replace")
        try:
            return ctypes.string_at(address).decode(errors="replace")
        finally:
            free(address)

    return demangled
