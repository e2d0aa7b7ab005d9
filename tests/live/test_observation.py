from dataclasses import asdict
from types import MappingProxyType

import pytest

from dask_efficiency.live.observation import baseline, read
from tests.live.test_top_view import NOW, observation


def test_the_baseline_is_the_youngest_observation_that_is_old_enough():
    observations = [observation(at, {}) for at in (1, 2, 3, 4)]
    now = observation(4.5, {})
    assert baseline(observations, now, seconds=2) == observations[1]
    assert baseline(observations, now, seconds=0.1) == observations[2]  # two heartbeats at least
    assert baseline(observations, now, seconds=60) == observations[0]
    assert baseline([], now, seconds=2) is None


def test_new_accounts_are_compared_with_no_observation_of_the_old_ones():
    assert baseline([observation(1, {}, session="old")], observation(4, {}), seconds=1) is None


def test_what_travels_is_read():
    payload = asdict(NOW)
    assert read(payload) == NOW
    assert read(MappingProxyType(payload)) == NOW


@pytest.mark.parametrize("payload", [{}, {"snapshot": {}}, {**asdict(NOW), "new": 1}, {**asdict(NOW), "workers": 5}])
def test_what_is_no_observation_is_refused(payload):
    with pytest.raises(ValueError, match="version"):
        read(payload)
