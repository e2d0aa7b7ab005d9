import numpy as np

from tests.fleet import generated


def test_a_past_does_not_change_its_window():
    without = generated.generate(30_003, machines=8, seconds=300, faults=True)
    within = generated.generate(30_003, machines=8, seconds=300, faults=True, past_seconds=600)
    assert without.past is None
    assert within.past is not None
    assert within.past.shape == (len(generated.METRICS), 8, 600)
    np.testing.assert_array_equal(without.values, within.values)


def test_seeds_serve_one_purpose_each():
    ranges = (generated.TRAIN, generated.TUNE, generated.REPORT)
    assert len(set().union(*ranges)) == sum(map(len, ranges))
