import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.sensors import (
    GPU_SENSORS,
    HOST_SENSORS,
    WRAP,
    Rates,
    decode_sensors,
    encode_sensors,
    gpu_sensors,
)
from tests.strategies import plain_data


def together(*readings: dict[str, float]) -> dict[str, float]:
    found = gpu_sensors({f"GPU-{i}": row for i, row in enumerate(readings)})
    return {name: value for name, value in zip(GPU_SENSORS, found, strict=True) if not math.isnan(value)}


def test_the_worst_of_several_gpus_shows_and_an_unknown_reading_is_absent():
    assert together(
        {"sm_clock_hertz": 1e9, "temperature_celsius": 50, "power_watts": 100, "throttled_thermal": 0},
        {"sm_clock_hertz": 5e8, "temperature_celsius": 90, "power_watts": 50, "throttled_thermal": 1},
    ) == {"gpu_clock": 5e8, "gpu_temperature": 90, "gpu_power": 150, "gpu_throttled": 0.5}
    one_way = {"pcie_received_bytes_per_second": 1.0, "pcie_sent_bytes_per_second": 2.0}
    assert together({**one_way, "nvlink_sent_bytes_per_second": 1.0}) == {"gpu_pcie": 3.0}
    assert all(map(math.isnan, gpu_sensors(None)))
    assert len(gpu_sensors({})) == len(GPU_SENSORS)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((10, 30, 30), [None, 10.0, 0.0]),
        ((WRAP - 50, 50), [None, 50.0]),  # of 32 bits
        ((3e9, 7, 9), [None, None, 1.0]),  # a reset
        ((2.0**40, 7), [None, None]),
    ],
)
def test_a_rate_is_the_growth_of_a_counter_in_a_second_which_may_wrap_or_be_reset(values, expected):
    rates: Rates[str] = Rates()
    assert [rates.take({"bytes": value}, at=2.0 * i).get("bytes") for i, value in enumerate(values)] == expected


def test_devices_that_come_and_go_make_no_rate_jump_and_two_readings_at_one_instant_have_none():
    rates = Rates()
    rates.take({"a": 0}, at=0)
    assert rates.take({"a": 10, "b": 1e12}, at=1) == {"a": 10}
    assert rates.take({"b": 1e12 + 5}, at=2) == {"b": 5}
    assert rates.take({"a": 20, "b": 1e12 + 5}, at=3) == {"b": 0}
    assert rates.take({"a": 21}, at=3) == {}


NAMES = list(HOST_SENSORS)
readings = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1e38))


@given(readings)
def test_a_decoded_reading_lacks_the_absent_sensors(reading):
    found = decode_sensors(encode_sensors(reading))
    assert [name for name, value in zip(NAMES, found, strict=True) if not np.isnan(value)] == [
        name for name in NAMES if name in reading
    ]
    for name, value in reading.items():
        assert found[NAMES.index(name)] == np.float32(value)


def test_a_reading_that_is_negative_or_not_finite_is_absent():
    reading = {"steal": math.nan, "host_cpu": -1.0, "swap_in": math.inf, "net_drops": 0.0}
    found = decode_sensors(encode_sensors(reading))
    assert found[NAMES.index("net_drops")] == 0
    assert np.isnan(np.delete(found, NAMES.index("net_drops"))).all()


@given(st.one_of(plain_data, st.lists(st.one_of(st.none(), st.floats(), plain_data), max_size=80)))
def test_any_payload_is_refused_or_finite(payload):
    for each in (payload, [payload, *[None] * (len(NAMES) - 1)]):
        try:
            found = decode_sensors(each)
        except RefusedPayload as refusal:
            assert "sensors" in str(refusal)
        else:
            assert not np.isinf(found).any()


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, 1e39, True, "1"], ids=repr)
def test_a_refusal_names_the_sensor_and_the_expected_value(value):
    payload = [*encode_sensors({})[:-1], value]
    with pytest.raises(RefusedPayload, match=rf"sensors\['{NAMES[-1]}'\] is .*; expected a number from 0 to 3.4e\+38"):
        decode_sensors(payload)
    with pytest.raises(RefusedPayload, match=f"expected {len(NAMES)} numbers"):
        decode_sensors(payload[1:])
