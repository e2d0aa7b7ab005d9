"""The decoder: what CUPTI wrote comes out, and nothing that is in a buffer can hurt it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.gpu.calls import LONG
from dask_efficiency.gpu.decode import decode
from dask_efficiency.gpu.layouts import DRIVER
from dask_efficiency.gpu.records import BEGINS_GRAPH, BLOCKS, COPY, ENDS_GRAPH, FILL, KERNEL, RETURNS, SPINS
from tests.gpu import buffers
from tests.gpu.buffers import call, copy, fill, kernel, some_layout

VERSIONS = [18, 26, 28, 130001, 130101, 130301, 130500]
LAUNCH, SYNCHRONIZE, MEMCPY_ASYNC, MEMCPY, BEGIN, END = 211, 165, 41, 31, 315, 319
#: Of a kind that is not ours, with a size that only CUPTI's pointers can tell.
OVERHEAD = 17

times = st.tuples(st.integers(1, 1 << 62), st.integers(0, 1 << 40)).map(lambda pair: (pair[0], pair[0] + pair[1]))
ids = st.integers(0, (1 << 32) - 1)


@given(
    st.sampled_from(VERSIONS),
    st.lists(
        st.tuples(st.sampled_from(["kernel", "copy", "fill", "call", "other"]), times, ids, st.integers(0, 7), ids)
    ),
)
def test_what_was_written_comes_out(version: int, rows: list[tuple[str, tuple[int, int], int, int, int]]) -> None:
    layout = some_layout(version)
    raw, operations, calls = b"", [], []
    for kind, (start, end), correlation, device, other in rows:
        if kind == "kernel":
            name = 0x5000 + other % 3 * 16
            raw += kernel(start, end, correlation, layout=layout, device=device, stream=other, name=name)
            operations.append((start, end, device, other, correlation, KERNEL, name))
        elif kind == "copy":
            raw += copy(start, end, correlation, layout=layout, device=device, stream=other)
            operations.append((start, end, device, other, correlation, COPY, -1))
        elif kind == "fill":
            raw += fill(start, end, correlation, layout=layout, device=device, stream=other)
            operations.append((start, end, device, other, correlation, FILL, -1))
        elif kind == "call":
            raw += call(start, end, correlation, cbid=LAUNCH, thread=other)
            calls.append((start, end, other, correlation, SPINS if end - start >= LONG else RETURNS))
        else:
            raw += buffers.record(OVERHEAD, 48, {})
    found = decode(raw + b"\xff" * 64, len(raw), layout, {OVERHEAD: 48})
    names = [int(found.pointers[index]) if index >= 0 else -1 for index in found.operations["name"]]
    rows_found = [(*row.item()[:-1], name) for row, name in zip(found.operations, names, strict=True)]
    assert sorted(rows_found) == sorted(operations)
    assert sorted(row.item() for row in found.calls) == sorted(calls)
    assert found.dropped == 0
    assert len(set(found.pointers.tolist())) == len(found.pointers)


@pytest.mark.parametrize(
    ("cbid", "kind", "took", "result", "waits", "correlation"),
    [
        (LAUNCH, 5, 10, 0, RETURNS, 3),
        (LAUNCH, 5, LONG, 0, SPINS, 3),
        (LAUNCH, 5, 10, 1, RETURNS, 0),
        (SYNCHRONIZE, 5, 10, 0, SPINS, 0),
        (MEMCPY_ASYNC, 5, 10, 0, RETURNS, 3),
        (MEMCPY, 5, 10, 0, SPINS, 3),
        (BEGIN, 5, 10, 0, BEGINS_GRAPH, 0),
        (END, 5, 10, 1, ENDS_GRAPH, 0),
        (307, DRIVER, 10, 0, RETURNS, 3),
        (17, DRIVER, 10, 0, SPINS, 0),
    ],
)
def test_what_a_call_does_is_told_by_its_number(
    cbid: int, kind: int, took: int, result: int, waits: int, correlation: int
) -> None:
    raw = call(100, 100 + took, 3, cbid=cbid, kind=kind, result=result)
    found = decode(raw, len(raw), some_layout())
    assert found.calls["waits"].tolist() == [waits]
    assert found.calls["correlation"].tolist() == [correlation]
    if waits == SPINS:
        assert decode(raw, len(raw), some_layout(), waiting=BLOCKS).calls["waits"].tolist() == [BLOCKS]


@pytest.mark.parametrize(("cbid", "result"), [(3, 0), (4_000_000_000, 0), (BEGIN, 1)])
def test_a_call_that_does_not_matter_is_left_out(cbid: int, result: int) -> None:
    raw = call(100, 110, 3, cbid=cbid, result=result)
    assert len(decode(raw, len(raw), some_layout()).calls) == 0


def test_a_kind_of_unknown_size_ends_the_buffer_and_is_counted() -> None:
    layout = some_layout()
    raw = kernel(1, 2, 3, layout=layout) + buffers.record(OVERHEAD, 48, {}) + kernel(4, 5, 6, layout=layout)
    found = decode(raw, len(raw), layout)
    assert found.operations["correlation"].tolist() == [3]
    assert found.dropped == 1


@pytest.mark.parametrize("size", [0, -8, 4, 12])
def test_an_impossible_size_is_none(size: int) -> None:
    raw = buffers.record(OVERHEAD, 48, {})
    assert decode(raw, len(raw), some_layout(), {OVERHEAD: size}).dropped == 1


def test_a_record_that_is_cut_off_is_counted() -> None:
    layout = some_layout()
    raw = kernel(1, 2, 3, layout=layout) * 2
    found = decode(raw, len(raw) - 8, layout)
    assert (len(found.operations), found.dropped) == (1, 1)


def test_a_record_without_times_is_counted_and_left_out() -> None:
    layout = some_layout()
    raw = kernel(0, 0, 3, layout=layout) + copy(9, 8, 4, layout=layout) + kernel(1, 2, 5, layout=layout)
    found = decode(raw, len(raw), layout)
    assert found.operations["correlation"].tolist() == [5]
    assert found.dropped == 2


@given(st.binary(max_size=600), st.integers(-10, 900), st.dictionaries(st.integers(0, 60), st.integers(-8, 300)))
def test_no_bytes_can_hurt(raw: bytes, valid: int, sizes: dict[int, int]) -> None:
    found = decode(raw, valid, some_layout(), sizes)
    assert len(found.operations) + len(found.calls) <= len(raw) // 8
    assert (found.operations["end"] >= found.operations["start"]).all()
    assert (found.calls["end"] >= found.calls["start"]).all()


def test_an_array_is_read_without_a_copy_of_it() -> None:
    layout = some_layout()
    raw = np.frombuffer(kernel(1, 2, 3, layout=layout), np.uint8).copy()
    assert decode(raw, len(raw), layout).operations["correlation"].tolist() == [3]
