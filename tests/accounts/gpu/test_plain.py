from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, MAX_NAMES, RefusedPayload
from dask_efficiency.accounts.gpu.plain import decode_gpu, encode_gpu
from dask_efficiency.accounts.gpu.totals import DeviceTotals, GpuTotals, KernelTotals
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


def test_what_is_encoded_shares_nothing_with_the_totals():
    one, other = encode_gpu(TOTALS), encode_gpu(TOTALS)
    for part in (one["hidden"], one["devices"][0]["shares"], one["readings"]["GPU-0"], one["readings"], one["kernels"]):
        part.clear()
    assert encode_gpu(TOTALS) == other


def test_a_name_of_a_kernel_that_is_too_long_is_cut_and_accepted():
    long = replace(TOTALS, kernels=(KernelTotals("train", "x" * 5_000, 1, 1),), description="y" * 5_000)
    found = decode_gpu(encode_gpu(long))
    assert found.kernels[0].name == "x" * MAX_NAME_LENGTH
    assert found.description == "y" * MAX_NAME_LENGTH


@pytest.mark.parametrize("value", [None, "1", -1, 1.0, float("nan"), True, 1 << 63, []], ids=repr)
@pytest.mark.parametrize("field", ["kernel_ns", "attributed_ns", "dropped", "gaps", "cost", "unknown_tasks"])
def test_a_number_out_of_order_is_refused_by_name(field, value):
    with pytest.raises(RefusedPayload, match=rf"^gpu\.{field} is "):
        decode_gpu(payload(**{field: value}))


@pytest.mark.parametrize("field", ["elapsed", "kernels", "copies", "idle", "unattributed", "tail", "late"])
def test_a_number_of_a_device_out_of_order_is_refused_by_name(field):
    for value in (None, -1, 1.5):
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
def test_what_does_not_add_up_or_is_of_a_wrong_type_is_refused_with_the_value(given, message):
    with pytest.raises(RefusedPayload, match=message) as caught:
        decode_gpu(given)
    assert len(str(caught.value)) < 500


@given(plain_data)
def test_whatever_comes_is_read_or_refused(data):
    with pytest.raises(RefusedPayload):
        decode_gpu(data)
