from __future__ import annotations

import math

import msgpack
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
        # The least normal float has fewer digits below it.
        assert found[NAMES.index(name)] == pytest.approx(value, rel=1 / 16_384, abs=1e-41)


def test_what_is_negative_or_no_number_is_absent():
    reading = {"steal": math.nan, "host_cpu": -1.0, "swap_in": math.inf, "net_drops": 0.0}
    found = decode_sensors(encode_sensors(reading))
    assert found[NAMES.index("net_drops")] == 0
    assert np.isnan(np.delete(found, NAMES.index("net_drops"))).all()


def test_all_sensors_add_less_than_100_bytes_to_a_heartbeat():
    payload = {"sensors": encode_sensors(dict.fromkeys(NAMES, 123.456))}
    assert len(msgpack.packb(payload)) < 100


@given(st.one_of(plain_data, st.text(max_size=40), st.text(st.characters(max_codepoint=127), max_size=80)))
def test_what_is_no_reading_is_refused_or_finite(payload):
    try:
        found = decode_sensors(payload)
    except RefusedPayload as refusal:
        assert "sensors" in str(refusal)
    else:
        assert not np.isinf(found).any()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("", "at least 4"),
        (b"\x00\x00\x00\x00", "ASCII"),
        ("\x00\x00\x00\x7f", "expected 22"),
        ("\x01\x00\x00\x00", "expected 7"),
        ("\x01\x00\x00\x00\x00\x40\x7f", "finite"),
    ],
)
def test_a_refusal_says_what_was_expected(payload, reason):
    with pytest.raises(RefusedPayload, match=reason):
        decode_sensors(payload)
