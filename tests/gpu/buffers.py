"""Buffers of activity records as CUPTI writes them."""

from __future__ import annotations

import struct

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


def some_layout(version: int = 130001) -> RecordLayout:
    layout = layout_for(version)
    assert layout is not None
    return layout


def record(kind: int, size: int, offsets: dict[str, int], **values: int) -> bytes:
    """One record; what is between the fields is not 0."""
    raw = bytearray(b"\xa5" * size)
    struct.pack_into("<I", raw, 0, kind)
    for name, value in values.items():
        wide = name in ("start", "end", "name")
        struct.pack_into("<Q" if wide else "<I", raw, offsets[name], value)
    return bytes(raw)


def kernel(
    start: int,
    end: int,
    correlation: int,
    *,
    layout: RecordLayout,
    device: int = 0,
    stream: int = 7,
    name: int = 0x5000,
) -> bytes:
    values = {
        "start": start,
        "end": end,
        "deviceId": device,
        "streamId": stream,
        "correlationId": correlation,
        "name": name,
    }
    return record(CONCURRENT_KERNEL, layout.kernel, dict(KERNEL_OFFSETS), **values)


def copy(start: int, end: int, correlation: int, *, layout: RecordLayout, device: int = 0, stream: int = 7) -> bytes:
    values = {"start": start, "end": end, "deviceId": device, "streamId": stream, "correlationId": correlation}
    return record(MEMCPY, layout.memcpy, dict(COPY_OFFSETS), **values)


def fill(start: int, end: int, correlation: int, *, layout: RecordLayout, device: int = 0, stream: int = 7) -> bytes:
    values = {"start": start, "end": end, "deviceId": device, "streamId": stream, "correlationId": correlation}
    return record(MEMSET, layout.memset, dict(COPY_OFFSETS), **values)


def call(
    start: int, end: int, correlation: int, *, cbid: int, thread: int = 9, result: int = 0, kind: int = RUNTIME
) -> bytes:
    values = {
        "cbid": cbid,
        "start": start,
        "end": end,
        "threadId": thread,
        "correlationId": correlation,
        "returnValue": result,
    }
    return record(kind, 40, dict(CALL_OFFSETS), **values)
