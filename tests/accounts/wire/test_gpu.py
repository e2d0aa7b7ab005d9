import contextlib
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, MAX_NAMES, RefusedPayload
from dask_efficiency.accounts.gpu import DEVICE_NUMBERS, MAX_KERNELS, NUMBERS, DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.accounts.wire.gpu import GpuWriter, decode_gpu, encode_gpu, read_gpu
from tests.strategies import any_gpu_totals, plain_data

DEVICE = DeviceTotals("GPU-0", "H100", 100, 60, 10, 30, {"train": 50, "(other)": 5}, 15, 7, 3)
TOTALS = GpuTotals(
    meter="cupti",
    description="CUPTI 13.0",
    devices=(DEVICE,),
    kernels=(KernelTotals("train", "gemm", 3, 80),),
    hidden={"train": 20},
    kernel_ns=80,
    attributed_ns=70,
    cost=4,
    readings={"GPU-0": {"power_watts": 300.0}},
)


def payload(**changes: Any) -> dict[str, Any]:
    return {**encode_gpu(TOTALS), **changes}


def device(**changes: Any) -> dict[str, Any]:
    return payload(devices=[{**encode_gpu(TOTALS)["devices"][0], **changes}])


@given(any_gpu_totals())
def test_totals_survive_a_heartbeat_and_a_file(totals):
    plain = encode_gpu(totals)
    assert decode_gpu(plain) == totals
    assert decode_gpu(msgpack.unpackb(msgpack.packb(plain), strict_map_key=False)) == totals
    assert decode_gpu(json.loads(json.dumps(plain))) == totals


def test_encoded_totals_share_nothing_with_them_and_long_names_are_cut():
    one, other = encode_gpu(TOTALS), encode_gpu(TOTALS)
    for part in (one["hidden"], one["devices"][0]["shares"], one["readings"]["GPU-0"], one["readings"], one["kernels"]):
        part.clear()
    assert encode_gpu(TOTALS) == other
    long = replace(TOTALS, kernels=(KernelTotals("train", "x" * 5_000, 1, 1),), description="y" * 5_000)
    found = decode_gpu(encode_gpu(long))
    assert found.kernels[0].name == "x" * MAX_NAME_LENGTH
    assert found.description == "y" * MAX_NAME_LENGTH


@pytest.mark.parametrize("value", [None, "1", -1, 1.0, float("nan"), True, 1 << 63, []], ids=repr)
def test_a_number_out_of_order_is_refused_by_name(value):
    for field in NUMBERS:
        with pytest.raises(RefusedPayload, match=rf"^gpu\.{field} is "):
            decode_gpu(payload(**{field: value}))
    for field in DEVICE_NUMBERS:
        with pytest.raises(RefusedPayload, match=rf"^gpu\.devices\.{field} is "):
            decode_gpu(device(**{field: value}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, r"gpu is None; expected a mapping"),
        (payload(meter=3), r"gpu\.meter is 3"),
        (payload(devices={}), r"gpu\.devices is \{\}; expected a list"),
        (payload(devices=[3]), r"gpu\.devices is 3; expected a mapping"),
        (payload(devices=[encode_gpu(TOTALS)["devices"][0]] * 2), r"\['GPU-0', 'GPU-0'\]; expected each once"),
        (device(uuid=7), r"gpu\.devices\.uuid is 7"),
        (device(idle=31), r"101 ns of kernels, copies and idle time; expected elapsed = 100 ns"),
        (device(unattributed=14), r"69 ns of shares and unattributed; expected kernels \+ copies = 70 ns"),
        (device(shares={"x": -1}), r"gpu\.devices\.shares\['x'\] is -1"),
        (payload(kernels=[["a", "b", 1]]), r"gpu\.kernels has \['a', 'b', 1\]; expected prefix, name, launches"),
        (payload(kernels=[["a", "b", -1, 5]]), r"gpu\.kernels\.launches is -1"),
        (payload(attributed_ns=81), r"gpu\.attributed_ns is 81; expected at most kernel_ns = 80"),
        (payload(hidden={"x": 0.5}), r"gpu\.hidden\['x'\] is 0\.5"),
        (
            payload(readings={"GPU-0": {"power_watts": float("inf")}}),
            r"gpu\.readings\['GPU-0'\]\['power_watts'\] is inf",
        ),
        (payload(readings={"GPU-0": [1]}), r"gpu\.readings\['GPU-0'\] is \[1\]; expected a mapping"),
        (payload(kernels=[["a", "b", 1, 1]] * (MAX_NAMES + 1)), r"gpu\.kernels is .*; expected a list of at most"),
    ],
)
def test_totals_out_of_order_are_refused_with_the_value(given, message):
    with pytest.raises(RefusedPayload, match=message) as caught:
        decode_gpu(given)
    assert len(str(caught.value)) < 500


def used(ns: int = 10, **changes: Any) -> GpuTotals:
    """What a worker had of two GPUs."""
    devices = tuple(
        DeviceTotals(f"GPU-{i}", "H100", 2 * ns, ns, 0, ns, {"train": ns - 1}, unattributed=1) for i in range(2)
    )
    totals = GpuTotals("cupti", "13.0", devices, kernel_ns=2 * ns, attributed_ns=ns, hidden={"train": ns})
    return replace(totals, readings={"GPU-0": {"power_watts": 1.5 * ns}}, **changes)


def sent(totals: GpuTotals) -> dict[str, Any]:
    return GpuWriter().write(totals, 1, -1)


def plain(totals: GpuTotals) -> GpuTotals:
    """With kernels as they are compared: each once, in any order."""
    launches, ns = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for kernel in totals.kernels:
        launches[kernel[:2]] += kernel.launches
        ns[kernel[:2]] += kernel.ns
    names = sorted(name for name in launches if launches[name] or ns[name])
    return replace(totals, kernels=tuple(KernelTotals(*name, launches[name], ns[name]) for name in names))


@given(st.lists(any_gpu_totals(), min_size=1, max_size=5))
def test_changes_are_enough_for_a_reader_of_the_state_before(states):
    writer = GpuWriter()
    last = None
    for seq, totals in enumerate(states):
        last = read_gpu(writer.write(totals, seq, seq - 1 if seq else -1), last)
        assert plain(last.totals) == plain(totals)


def test_kernels_are_ranked_by_time_and_the_rest_comes_last():
    gemm, add = KernelTotals("f", "gemm", 1, 50), KernelTotals("f", "add", 1, 5)
    kernels = [KernelTotals("(other)", "(other)", 9, 90), add, gemm]
    found = read_gpu(sent(used(kernels=kernels))).totals.kernels
    assert [kernel.name for kernel in found] == ["gemm", "add", "(other)"]
    assert found[:1] == (gemm,)


def test_the_name_of_a_kernel_travels_once_and_remembered_names_are_bounded():
    writer = GpuWriter()
    last = None
    for seq in range(6):
        kernels = [KernelTotals("f", f"kernel-{seq % 2}", 1, 5 + seq)]
        payload = writer.write(used(kernels=kernels), seq, seq - 1 if seq else -1)
        last = read_gpu(payload, last)
        assert plain(last.totals).kernels == tuple(kernels)
        assert ("kernel-" in repr(payload)) is (seq < 2)
    writer = GpuWriter()
    for seq in range(3 * MAX_KERNELS):
        payload = writer.write(used(kernels=[KernelTotals("f", f"kernel-{seq}", 1, 5)]), seq, -1)
    assert len(payload["n"]) <= 2 * (2 * MAX_KERNELS + 2)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (used(devices=(DeviceTotals("GPU-0", elapsed=5, kernels=1, idle=3),)), "expected elapsed = 5 ns"),
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
    with contextlib.suppress(RefusedPayload):
        assert isinstance(read_gpu({**payload, field: garbage}).totals, GpuTotals)
    for damaged in (garbage, {**encode_gpu(TOTALS), {"a": "devices", "r": "readings"}.get(field, "kernels"): garbage}):
        with contextlib.suppress(RefusedPayload):
            decode_gpu(damaged)
