"""Decodes buffers of CUPTI's activity records into arrays of operations and calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu import calls as does
from dask_efficiency.gpu.layouts import (
    CALL_OFFSETS,
    CONCURRENT_KERNEL,
    COPY_OFFSETS,
    DRIVER,
    KERNEL_OFFSETS,
    MEMCPY,
    MEMSET,
    RUNTIME,
    Layout,
)
from dask_efficiency.gpu.records import (
    BEGINS_GRAPH,
    CALL,
    COPY,
    ENDS_GRAPH,
    FILL,
    KERNEL,
    OPERATION,
    RETURNS,
    SPINS,
    Calls,
    Operations,
)

#: Every record is a multiple of this long, in bytes.
_ALIGNMENT = 8
_UNNAMED = -1


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a buffer held. Its times are those of CUPTI's clock, not yet monotonic."""

    #: ``name`` is an index into ``pointers``.
    operations: Operations
    calls: Calls
    #: Addresses of the names of kernels, each once.
    pointers: NDArray[np.uint64]
    #: Records without times; a rest of the buffer that could not be read counts as one.
    dropped: int = 0


def decode(
    buffer: bytes | bytearray | memoryview | NDArray[np.uint8],
    valid: int,
    layout: Layout,
    sizes: Mapping[int, int] | None = None,
    *,
    waiting: int = SPINS,
) -> Decoded:
    """Read a buffer that CUPTI has completed.

    Parameters
    ----------
    buffer
        Records one after another, as CUPTI wrote them.
    valid
        How many bytes of it are filled.
    layout
        That of this version of CUPTI, from :func:`~dask_efficiency.gpu.layouts.layout_for`.
    sizes
        Bytes of records by kind, as found from the distances between the pointers of ``cuptiActivityGetNextRecord``.
        They go before those of the layout, and may have kinds that it lacks.
    waiting
        What a call that waits does to its thread, ``BLOCKS`` or ``SPINS``: the device's schedule flag.

    Returns
    -------
    Decoded
        What could be read. A record of unknown size ends the reading, and is counted as dropped.
    """
    valid = min(max(valid, 0), len(buffer))
    words = np.frombuffer(buffer, np.uint32, count=valid // 4)
    at, kinds, lost = _walk(words, {**layout.sizes, **(sizes or {})})
    kernels, names = _operations(words, at[kinds == CONCURRENT_KERNEL], KERNEL_OFFSETS, KERNEL)
    copies, _ = _operations(words, at[kinds == MEMCPY], COPY_OFFSETS, COPY)
    fills, _ = _operations(words, at[kinds == MEMSET], COPY_OFFSETS, FILL)
    runtime = _calls(words, at[kinds == RUNTIME], does.RUNTIME_TABLE, waiting)
    driver = _calls(words, at[kinds == DRIVER], does.DRIVER_TABLE, waiting)
    operations = np.concatenate([kernels, copies, fills])
    timed = (operations["end"] >= operations["start"]) & (operations["start"] > 0)
    untimed = len(operations) - int(timed.sum())
    if untimed:
        operations = operations[timed]
    return Decoded(operations, np.concatenate([runtime, driver]), names, lost + untimed)


def _walk(words: NDArray[np.uint32], sizes: Mapping[int, int]) -> tuple[NDArray[np.int64], NDArray[np.uint32], int]:
    """Where each record begins, in words; its kind; and 1 if a rest could not be read, else 0."""
    steps = {kind: size // 4 for kind, size in sizes.items() if size > 0 and size % _ALIGNMENT == 0}
    begins: list[int] = []
    append, kind_at = begins.append, words.data
    position, end, lost = 0, len(words), 0
    try:
        # Every step is at least two words long, so the loop ends.
        while position < end:
            step = steps[kind_at[position]]
            append(position)
            position += step
    except KeyError:
        lost = 1
    if position > end:
        # The last record is cut off.
        begins.pop()
        lost = 1
    at = np.array(begins, np.int64)
    return at, words[at], lost


def _operations(
    words: NDArray[np.uint32], at: NDArray[np.int64], offsets: Mapping[str, int], activity: int
) -> tuple[Operations, NDArray[np.uint64]]:
    found = np.empty(len(at), OPERATION)
    found["start"] = _long(words, at, offsets["start"])
    found["end"] = _long(words, at, offsets["end"])
    found["device"] = words[at + offsets["deviceId"] // 4]
    found["stream"] = words[at + offsets["streamId"] // 4]
    found["correlation"] = words[at + offsets["correlationId"] // 4]
    found["activity"] = activity
    found["name"] = _UNNAMED
    if "name" not in offsets:
        return found, np.empty(0, np.uint64)
    pointers, found["name"] = np.unique(_long(words, at, offsets["name"]), return_inverse=True)
    return found, pointers


def _calls(words: NDArray[np.uint32], at: NDArray[np.int64], table: NDArray[np.uint8], waiting: int) -> Calls:
    numbers = words[at + CALL_OFFSETS["cbid"] // 4]
    what = table[np.minimum(numbers, len(table) - 1)]
    start = _long(words, at, CALL_OFFSETS["start"]).view(np.int64)
    end = _long(words, at, CALL_OFFSETS["end"]).view(np.int64)
    failed = words[at + CALL_OFFSETS["returnValue"] // 4] != 0
    # CUPTI writes 0 where it has no time.
    keep = (what > 0) & (start > 0) & (end >= start) & ~(failed & (what == does.BEGINS_GRAPH))
    if not keep.all():
        at, what, start, end, failed = at[keep], what[keep], start[keep], end[keep], failed[keep]
    effects = np.array([RETURNS, RETURNS, waiting, waiting, BEGINS_GRAPH, ENDS_GRAPH], np.uint8)
    found = np.empty(len(at), CALL)
    found["start"] = start
    found["end"] = end
    found["thread"] = words[at + CALL_OFFSETS["threadId"] // 4]
    found["correlation"] = words[at + CALL_OFFSETS["correlationId"] // 4]
    found["correlation"][failed | (what > does.COPIES)] = 0
    found["waits"] = effects[what]
    found["waits"][(what == does.ASKS) & (end - start >= does.LONG)] = waiting
    return found


def _long(words: NDArray[np.uint32], at: NDArray[np.int64], offset: int) -> NDArray[np.uint64]:
    """The 64-bit field at an offset that is a multiple of 8, as are the records."""
    return words[: len(words) // 2 * 2].view(np.uint64)[(at + offset // 4) // 2]
