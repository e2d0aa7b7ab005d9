from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.gpu.heartbeats import MAX_KERNELS, GpuWriter, read_gpu
from dask_efficiency.accounts.gpu.totals import DeviceTotals, GpuTotals, KernelTotals
from tests.strategies import any_gpu_totals, plain_data


def used(ns: int = 10, **changes: Any) -> GpuTotals:
    """What a worker had of two GPUs."""
    devices = tuple(
        DeviceTotals(f"GPU-{i}", "H100", 2 * ns, ns, 0, ns, {"train": ns - 1}, unattributed=1) for i in range(2)
    )
    totals = GpuTotals("cupti", "13.0", devices, kernel_ns=2 * ns, attributed_ns=ns, hidden={"train": ns})
    return replace(totals, readings={"GPU-0": {"power_watts": 1.5 * ns}}, **changes)


def sent(totals: GpuTotals) -> dict[str, Any]:
    writer = GpuWriter()
    writer.take(totals, 1)
    return writer.write(-1)


def plain(totals: GpuTotals) -> GpuTotals:
    """With kernels as they are compared: each once, in any order."""
    rows: dict[tuple[str, str], list[int]] = {}
    for prefix, name, launches, ns in totals.kernels:
        row = rows.setdefault((prefix, name), [0, 0])
        row[0] += launches
        row[1] += ns
    kernels = tuple(sorted(KernelTotals(*name, *row) for name, row in rows.items() if any(row)))
    return replace(totals, kernels=kernels)


@given(any_gpu_totals())
def test_totals_survive_the_wire(totals):
    assert plain(read_gpu(sent(totals)).totals) == plain(totals)


@given(st.lists(any_gpu_totals(), min_size=1, max_size=5))
def test_what_changed_is_enough_for_who_has_the_state_before(states):
    writer = GpuWriter()
    last = None
    for seq, totals in enumerate(states):
        writer.take(totals, seq)
        last = read_gpu(writer.write(seq - 1 if seq else -1), last)
        assert plain(last.totals) == plain(totals)


def test_kernels_come_with_those_first_that_took_most_time_and_the_rest_last():
    gemm, add = KernelTotals("f", "gemm", 1, 50), KernelTotals("f", "add", 1, 5)
    kernels = [KernelTotals("(other)", "(other)", 9, 90), add, gemm]
    found = read_gpu(sent(used(kernels=kernels))).totals.kernels
    assert [kernel.name for kernel in found] == ["gemm", "add", "(other)"]
    assert found[:1] == (gemm,)


def test_a_kernel_s_name_travels_once_even_if_it_is_not_always_among_the_first():
    writer = GpuWriter()
    last = None
    for seq in range(6):
        kernels = [KernelTotals("f", f"kernel-{seq % 2}", 1, 5 + seq)]
        writer.take(used(kernels=kernels), seq)
        payload = writer.write(seq - 1 if seq else -1)
        last = read_gpu(payload, last)
        assert plain(last.totals).kernels == tuple(kernels)
        assert ("kernel-" in repr(payload)) is (seq < 2)


def test_kernels_whose_names_are_remembered_are_bounded():
    writer = GpuWriter()
    for seq in range(3 * MAX_KERNELS):
        writer.take(used(kernels=[KernelTotals("f", f"kernel-{seq}", 1, 5)]), seq)
    assert len(writer.write(-1)["n"]) <= 2 * (2 * MAX_KERNELS + 2)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (used(devices=(DeviceTotals("GPU-0", elapsed=5, kernels=1, idle=3),)), "expected elapsed = 5 ns"),
        (
            used(devices=(DeviceTotals("GPU-0", elapsed=5, kernels=5, shares={"f": 4}),)),
            r"expected kernels \+ copies = 5",
        ),
        (used(devices=(DeviceTotals("GPU-0"), DeviceTotals("GPU-0"))), "expected each once"),
        (used(attributed_ns=1000), "expected at most kernel_ns = 20"),
        (used(dropped=-1), "gpu.a is -1"),
        (used(gaps=1.5), "gpu.a is 1.5"),
    ],
)
def test_totals_that_do_not_add_up_are_refused(broken, message):
    payload = sent(broken)
    with pytest.raises(RefusedPayload, match=message):
        read_gpu(payload)


@pytest.mark.parametrize("reading", [float("nan"), float("inf"), "1", None, True])
def test_readings_that_are_no_finite_numbers_are_refused(reading):
    payload = sent(used())
    with pytest.raises(RefusedPayload, match=r"gpu\.readings has "):
        read_gpu({**payload, "r": [reading]})


@given(st.sampled_from(["a", "r", "k", "b", "c", "p", "n"]), plain_data)
def test_garbage_in_a_field_is_read_or_refused(field, garbage):
    payload = sent(used(kernels=[KernelTotals("f", "gemm", 1, 2)]))
    try:
        held = read_gpu({**payload, field: garbage})
    except RefusedPayload:
        return
    assert isinstance(held.totals, GpuTotals)
