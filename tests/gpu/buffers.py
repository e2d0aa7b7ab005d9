"""Buffers of activity records as CUPTI writes them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial

from dask_efficiency.gpu.cupti.decode import (
    CALL_OFFSETS,
    CONCURRENT_KERNEL,
    COPY_OFFSETS,
    KERNEL_OFFSETS,
    MEMCPY,
    MEMSET,
    RUNTIME,
    RecordLayout,
    layout_for,
)
from dask_efficiency.gpu.meter import COPY, FILL, KERNEL


def some_layout(version: int = 130001) -> RecordLayout:
    layout = layout_for(version)
    assert layout is not None
    return layout


def record(kind: int, size: int, offsets: Mapping[str, int], **values: int) -> bytes:
    """One record; bytes between the fields are not 0."""
    raw = bytearray(b"\xa5" * size)
    struct.pack_into("<I", raw, 0, kind)
    for name, value in values.items():
        wide = name in ("start", "end", "name")
        struct.pack_into("<Q" if wide else "<I", raw, offsets[name], value)
    return bytes(raw)


def operation(
    activity: int,
    start: int,
    end: int,
    correlation: int,
    *,
    layout: RecordLayout,
    device: int = 0,
    stream: int = 7,
    name: int = 0x5000,
) -> bytes:
    """Record of a kernel, copy or fill; only a kernel has a name."""
    values = {"start": start, "end": end, "deviceId": device, "streamId": stream, "correlationId": correlation}
    if activity == KERNEL:
        return record(CONCURRENT_KERNEL, layout.sizes[CONCURRENT_KERNEL], KERNEL_OFFSETS, **values, name=name)
    kind = {COPY: MEMCPY, FILL: MEMSET}[activity]
    return record(kind, layout.sizes[kind], COPY_OFFSETS, **values)


kernel, copy = partial(operation, KERNEL), partial(operation, COPY)


def call(
    start: int, end: int, correlation: int, *, cbid: int, thread: int = 9, result: int = 0, kind: int = RUNTIME
) -> bytes:
    ids = {"cbid": cbid, "threadId": thread, "correlationId": correlation, "returnValue": result}
    return record(kind, 40, CALL_OFFSETS, start=start, end=end, **ids)
