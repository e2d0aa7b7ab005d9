from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks import stragglers_fleet as fleet
from benchmarks.stragglers_fleet_faults import FAULTS, GROUPS, MOVES


def _medians(values: np.ndarray) -> np.ndarray:
    return np.nanmedian(values, axis=2)


def test_a_window_follows_from_its_seed():
    one, again = (fleet.generate(30_001, machines=8, seconds=120) for _ in range(2))
    np.testing.assert_array_equal(one.values, again.values)
    assert not np.array_equal(one.values, fleet.generate(30_002, machines=8, seconds=120).values, equal_nan=True)


def test_a_past_does_not_change_its_window():
    without = fleet.generate(30_003, machines=8, seconds=300, faults=True)
    within = fleet.generate(30_003, machines=8, seconds=300, faults=True, past_seconds=600)
    assert without.past is None
    assert within.past is not None
    assert within.past.shape == (len(fleet.METRICS), 8, 600)
    np.testing.assert_array_equal(without.values, within.values)


def test_values_are_normalised_and_few_are_lost():
    values = fleet.generate(30_004, machines=16).values
    assert values.dtype == np.float32
    assert values.shape == (len(fleet.METRICS), 16, 900)
    assert np.nanmin(values) >= 0
    assert np.nanmax(values) <= 1
    assert 0.001 < np.isnan(values).mean() < 0.05


def test_a_third_of_the_windows_is_healthy():
    healthy = sum(not fleet.generate(seed, machines=4, seconds=60).faulty for seed in fleet.TUNE[:150])
    assert 35 <= healthy <= 65


def test_healthy_machines_differ_lastingly_by_some_percent():
    window = fleet.generate(30_005, machines=200, faults=False, past_seconds=900)
    assert window.past is not None
    for name, most in (("memory_usage", 0.065), ("gpu_temperature", 0.095)):
        number = window.metrics.index(name)
        medians = _medians(window.values)[number]
        off = np.abs(medians / np.median(medians) - 1)
        assert 0.1 < (off > 0.01).mean() < 0.5
        assert off.max() < most
        before = _medians(window.past)[number]
        assert np.corrcoef(medians, before)[0, 1] > 0.9


def test_a_fault_moves_its_machine_off_the_others():
    far = []
    for seed in fleet.REPORT[:20]:
        window = fleet.generate(seed, machines=24, faults=True)
        assert window.onset is not None
        start = int(window.onset) + 30
        medians = _medians(window.values[:, :, start : start + 80])
        off = np.abs(medians - np.median(medians, axis=1, keepdims=True)) / np.median(medians, axis=1, keepdims=True)
        far.append(off[:, window.faulty[0]].max() > 0.05)
    assert np.mean(far) >= 0.9


def test_a_fault_from_before_the_window_is_in_its_past():
    window = fleet.generate(30_008, machines=12, faults=True, onset_before=True, past_seconds=900)
    assert window.onset is not None
    assert window.past is not None
    assert -600 <= window.onset <= -60
    (faulty,) = window.faulty
    healthy = fleet.generate(30_008, machines=12, faults=False, past_seconds=900)
    assert healthy.past is not None
    onset = 900 + int(window.onset)
    np.testing.assert_array_equal(window.past[:, :, : onset - 1], healthy.past[:, :, : onset - 1])
    assert not np.array_equal(window.past[:, faulty, onset:], healthy.past[:, faulty, onset:], equal_nan=True)


def test_concurrent_faults_name_all_their_machines():
    assert len(fleet.generate(30_009, machines=30, seconds=60, faults=True, concurrent=4).faulty) == 4
    with pytest.raises(ValueError, match="concurrent=4 of machines=8"):
        fleet.generate(30_009, machines=8, faults=True, concurrent=4)


def test_a_life_has_its_faults_and_a_replaced_machine_has_no_past():
    life = fleet.generate_life(30_010, windows=6, faults=3, machines=10, seconds=120, past_seconds=240)
    assert sum(bool(window.faulty) for window in life) == 3
    for window, following in pairwise(life):
        assert following.past is not None
        assert np.isnan(following.past[:, list(window.faulty)]).all()
        if not window.faulty:
            np.testing.assert_array_equal(following.past[:, :, -120:], window.values)


def test_tables_of_faults_name_metrics_that_there_are():
    assert set(MOVES) == set(fleet.NAMES) == {name for group in GROUPS.values() for name in group}
    assert all(len(shown) == len(GROUPS) for _, shown in FAULTS.values())


def test_seeds_serve_one_purpose_each():
    ranges = (fleet.TRAIN, fleet.TUNE, fleet.REPORT)
    assert len(set().union(*ranges)) == sum(map(len, ranges))
