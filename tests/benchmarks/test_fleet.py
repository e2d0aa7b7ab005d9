import numpy as np

from benchmarks.studies import fleet


def test_a_past_does_not_change_its_window():
    without = fleet.generate(30_003, machines=8, seconds=300, faults=True)
    within = fleet.generate(30_003, machines=8, seconds=300, faults=True, past_seconds=600)
    assert without.past is None
    assert within.past is not None
    assert within.past.shape == (len(fleet.METRICS), 8, 600)
    np.testing.assert_array_equal(without.values, within.values)


def test_seeds_serve_one_purpose_each():
    ranges = (fleet.TRAIN, fleet.TUNE, fleet.REPORT)
    assert len(set().union(*ranges)) == sum(map(len, ranges))
