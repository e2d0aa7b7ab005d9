from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

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
    Decoded,
    KernelNames,
    RecordLayout,
    decode,
    layout_for,
    shortened,
)
from dask_efficiency.gpu.meter import BEGINS_GRAPH, BLOCKS, COPY, ENDS_GRAPH, FILL, KERNEL, RETURNS, SPINS
from tests.gpu import buffers
from tests.gpu.buffers import call, copy, kernel, some_layout
from tests.gpu.cupti_headers import FIELDS, KINDS, header, measured

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
    assert layout.kernel_record == record
    assert layout.sizes == {10: kernel, 1: memcpy, 2: memset, 4: call, 5: call}


@pytest.mark.parametrize("version", [0, 17, 19, 25, 29, 1300, 120000, 130600, 140000])
def test_a_version_whose_header_was_not_checked_has_no_layout(version: int) -> None:
    assert layout_for(version) is None


def test_a_header_that_is_here_agrees(header: Path, tmp_path: Path) -> None:
    found = measured(header, tmp_path)
    layout = layout_for(int(found["version"]))
    assert layout is not None, f"no layout for {header}, version {found['version']}"
    assert layout.kernel_record == found["record"]
    assert [layout.sizes[kind] for kind in (10, 1, 2, 4)] == [found[stem] for stem in FIELDS]
    for stem, offsets in zip(FIELDS, (KERNEL_OFFSETS, COPY_OFFSETS, COPY_OFFSETS, CALL_OFFSETS), strict=True):
        assert offsets == {field: found[f"{stem}.{field}"] for field in offsets}
    assert [getattr(layouts, kind) for kind in KINDS] == [found[kind] for kind in KINDS]


VERSIONS = [18, 26, 28, 130001, 130101, 130301, 130500]
LAUNCH, SYNCHRONIZE, MEMCPY_ASYNC, MEMCPY, BEGIN, END = 211, 165, 41, 31, 315, 319
#: Of a kind that is not ours, with a size that only CUPTI's pointers can tell.
OVERHEAD = 17


def decoded(raw: bytes, layout: RecordLayout | None = None, sizes: dict[int, int] | None = None) -> Decoded:
    return decode(raw, layout or some_layout(), sizes, waiting=SPINS)


times = st.tuples(st.integers(1, 1 << 62), st.integers(0, 1 << 40)).map(lambda pair: (pair[0], pair[0] + pair[1]))
ids = st.integers(0, (1 << 32) - 1)


@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(st.sampled_from([KERNEL, COPY, FILL, "call", "other"]), times, ids, st.integers(0, 7), ids)),
)
def test_records_are_read_as_they_were_written(version: int, rows: list[tuple[Any, tuple[int, int], int, int, int]]):
    layout = some_layout(version)
    raw, operations, calls = b"", [], []
    for kind, (start, end), correlation, device, other in rows:
        if kind == "call":
            raw += call(start, end, correlation, cbid=LAUNCH, thread=other)
            calls.append((start, end, other, correlation, SPINS if end - start >= LONG else RETURNS))
        elif kind == "other":
            raw += buffers.record(OVERHEAD, 48, {})
        else:
            name = 0x5000 + other % 3 * 16
            ids = {"device": device, "stream": other, "name": name}
            raw += buffers.operation(kind, start, end, correlation, layout=layout, **ids)
            operations.append((start, end, device, other, correlation, kind, name if kind == KERNEL else -1))
    found = decoded(raw, layout, {OVERHEAD: 48})
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
def test_the_number_of_a_call_gives_its_effect(
    cbid: int, kind: int, took: int, result: int, waits: int, correlation: int
) -> None:
    raw = call(100, 100 + took, 3, cbid=cbid, kind=kind, result=result)
    found = decoded(raw)
    assert found.calls["waits"].tolist() == [waits]
    assert found.calls["correlation"].tolist() == [correlation]
    if waits == SPINS:
        assert decode(raw, some_layout(), waiting=BLOCKS).calls["waits"].tolist() == [BLOCKS]


@pytest.mark.parametrize(("cbid", "result"), [(3, 0), (4_000_000_000, 0), (BEGIN, 1)])
def test_a_call_that_does_not_matter_is_left_out(cbid: int, result: int) -> None:
    assert len(decoded(call(100, 110, 3, cbid=cbid, result=result)).calls) == 0


A_KERNEL = kernel(1, 2, 3, layout=some_layout())


@pytest.mark.parametrize(
    ("raw", "correlations", "dropped"),
    [
        # A kind of unknown size ends the reading.
        (A_KERNEL + buffers.record(OVERHEAD, 48, {}) + kernel(4, 5, 6, layout=some_layout()), [3], 1),
        (A_KERNEL + A_KERNEL[:-8], [3], 1),  # cut off
        # Without times.
        (kernel(0, 0, 4, layout=some_layout()) + copy(9, 8, 5, layout=some_layout()) + A_KERNEL, [3], 2),
    ],
)
def test_records_that_cannot_be_read_are_counted(raw: bytes, correlations: list[int], dropped: int) -> None:
    found = decoded(raw)
    assert (found.operations["correlation"].tolist(), found.dropped) == (correlations, dropped)


@pytest.mark.parametrize("size", [0, -8, 4, 12])
def test_an_impossible_size_is_unknown(size: int) -> None:
    assert decoded(buffers.record(OVERHEAD, 48, {}), sizes={OVERHEAD: size}).dropped == 1


@given(st.binary(max_size=600), st.dictionaries(st.integers(0, 60), st.integers(-8, 300)))
def test_any_bytes_can_be_read(raw: bytes, sizes: dict[int, int]) -> None:
    found = decoded(raw, sizes=sizes)
    assert len(found.operations) + len(found.calls) <= len(raw) // 8
    assert (found.operations["end"] >= found.operations["start"]).all()
    assert (found.calls["end"] >= found.calls["start"]).all()


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
        ("k" * 5000, "k" * (MAX_LENGTH - 1) + "…"),
    ],
)
def test_a_shortened_name_still_distinguishes_kernels(name: str, short: str):
    assert shortened(name) == short


def test_a_name_is_read_at_its_address_demangled_and_shortened():
    place = ctypes.create_string_buffer(MANGLED)
    names = KernelNames()
    address = ctypes.addressof(place)
    assert names.at([address, 0]) == ["vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1ul>>", ""]
    for name, readable in ((b"another", "another"), (b"_Znonsense\xff", "_Znonsense\ufffd")):
        place.value = name
        assert names.at([address]) == [readable]
