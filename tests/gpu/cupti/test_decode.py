from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.gpu.calls import LONG
from dask_efficiency.gpu.cupti import decode as layouts
from dask_efficiency.gpu.cupti.decode import (
    CALL_OFFSETS,
    COPY_OFFSETS,
    DRIVER,
    KERNEL_OFFSETS,
    MAX_LENGTH,
    KernelNames,
    decode,
    layout_for,
    shortened,
)
from dask_efficiency.gpu.meter import BEGINS_GRAPH, BLOCKS, COPY, ENDS_GRAPH, FILL, KERNEL, RETURNS, SPINS
from tests.gpu import buffers
from tests.gpu.buffers import call, copy, fill, kernel, some_layout
from tests.gpu.cupti_headers import KINDS, header, measured

__all__ = ["header"]

#: CUPTI_API_VERSION, the release whose header says so, and there sizeof of the newest kernel, memcpy, memset and API
#: records, as gcc 12 has them on x86-64.
FIGURES = [
    (18, "12.1.105", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (20, "12.2.142", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (21, "12.3.101", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (22, "12.4.127", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (23, "12.5.82", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (24, "12.6.80", "CUpti_ActivityKernel9", 208, 88, 88, 40),
    (26, "12.8.90", "CUpti_ActivityKernel9", 208, 96, 88, 40),
    (27, "12.9.19", "CUpti_ActivityKernel9", 208, 96, 88, 40),
    (28, "12.9.79", "CUpti_ActivityKernel9", 208, 96, 88, 40),
    (130000, "13.0.48", "CUpti_ActivityKernel10", 216, 96, 88, 40),
    (130101, "13.1.115", "CUpti_ActivityKernel11", 224, 96, 88, 40),
    (130202, "13.2.86", "CUpti_ActivityKernel11", 224, 96, 88, 40),
    (130301, "13.3.75", "CUpti_ActivityKernel12", 232, 96, 88, 40),
    (130401, "13.4.92", "CUpti_ActivityKernel13", 248, 112, 104, 40),
    (130500, "13.5.25", "CUpti_ActivityKernel13", 248, 112, 104, 40),
]


@pytest.mark.parametrize(("version", "release", "record", "kernel", "memcpy", "memset", "call"), FIGURES)
def test_a_layout_has_the_figures_of_its_header(
    version: int, release: str, record: str, kernel: int, memcpy: int, memset: int, call: int
) -> None:
    layout = layout_for(version)
    assert layout is not None, release
    assert (layout.kernel_record, layout.kernel, layout.memcpy, layout.memset, layout.call) == (
        record,
        kernel,
        memcpy,
        memset,
        call,
    )


@pytest.mark.parametrize("version", [0, 17, 19, 25, 29, 1300, 120000, 130600, 140000])
def test_a_version_that_nobody_has_looked_at_has_no_layout(version: int) -> None:
    assert layout_for(version) is None


def test_every_size_is_that_of_its_kind() -> None:
    layout = layout_for(130401)
    assert layout is not None
    assert layout.sizes == {10: 248, 1: 112, 2: 104, 4: 40, 5: 40}


def test_a_header_that_is_here_agrees(header: Path, tmp_path: Path) -> None:
    found = measured(header, tmp_path)
    layout = layout_for(int(found["version"]))
    assert layout is not None, f"no layout for {header}, version {found['version']}"
    assert layout.kernel_record == found["record"]
    assert (layout.kernel, layout.memcpy, layout.memset, layout.call) == tuple(
        found[stem] for stem in ("Kernel", "Memcpy", "Memset", "API")
    )
    for stem, offsets in (
        ("Kernel", KERNEL_OFFSETS),
        ("Memcpy", COPY_OFFSETS),
        ("Memset", COPY_OFFSETS),
        ("API", CALL_OFFSETS),
    ):
        assert offsets == {field: found[f"{stem}.{field}"] for field in offsets}
    assert [getattr(layouts, kind) for kind in KINDS] == [found[kind] for kind in KINDS]


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


MANGLED = b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (
            "void at::native::elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, T)",
            "elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul>>",
        ),
        ("void (anonymous namespace)::softmax<(int)8, float>(float*, int)", "softmax<8, float>"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        ),
        ("kernel(void (*)(int), float)", "kernel"),
        ("", ""),
        ("unbalanced)", "unbalanced)"),
    ],
)
def test_a_name_is_cut_to_what_tells_kernels_apart(name: str, short: str):
    assert shortened(name) == short


def test_long_names_end_in_an_ellipsis():
    assert shortened("k" * 5000) == "k" * (MAX_LENGTH - 1) + "…"


def test_a_name_is_read_demangled_and_shortened_where_it_stands():
    place = ctypes.create_string_buffer(MANGLED)
    names = KernelNames()
    address = ctypes.addressof(place)
    assert names.at([address, 0]) == ["vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul>>", ""]
    place.value = b"another"
    assert names.at([address]) == ["another"]


def test_what_is_not_a_name_stays_readable():
    place = ctypes.create_string_buffer(b"_Znonsense\xff")
    assert KernelNames().at([ctypes.addressof(place)]) == ["_Znonsense\ufffd"]
