from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.sensors.names import HOST_SENSORS
from dask_efficiency.accounts.sensors.wire import decode_sensors, encode_sensors
from tests.strategies import plain_data

NAMES = list(HOST_SENSORS)
readings = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1e38))


@given(readings)
def test_a_reading_comes_back_with_what_is_absent_absent(reading):
    found = decode_sensors(encode_sensors(reading))
    assert [name for name, value in zip(NAMES, found, strict=True) if not np.isnan(value)] == [
        name for name in NAMES if name in reading
    ]
    for name, value in reading.items():
        assert found[NAMES.index(name)] == np.float32(value)


def test_what_is_negative_or_no_number_is_absent():
    reading = {"steal": math.nan, "host_cpu": -1.0, "swap_in": math.inf, "net_drops": 0.0}
    found = decode_sensors(encode_sensors(reading))
    assert found[NAMES.index("net_drops")] == 0
    assert np.isnan(np.delete(found, NAMES.index("net_drops"))).all()


@given(st.one_of(plain_data, st.lists(st.one_of(st.none(), st.floats(), plain_data), max_size=80)))
def test_what_is_no_reading_is_refused_or_finite(payload):
    for each in (payload, [payload, *[None] * (len(NAMES) - 1)]):
        try:
            found = decode_sensors(each)
        except RefusedPayload as refusal:
            assert "sensors" in str(refusal)
        else:
            assert not np.isinf(found).any()


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, 1e39, True, "1"], ids=repr)
def test_a_refusal_says_which_sensor_and_what_was_expected(value):
    payload = [*encode_sensors({})[:-1], value]
    with pytest.raises(RefusedPayload, match=rf"sensors\['{NAMES[-1]}'\] is .*; expected a number from 0 to 3.4e\+38"):
        decode_sensors(payload)
    with pytest.raises(RefusedPayload, match=f"expected {len(NAMES)} numbers"):
        decode_sensors(payload[1:])
