from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.straggler.history import MAX_INTERVALS, History, Interval
from dask_efficiency.straggler.signals import DURATION

WINDOW = 240


def remembering(seconds: int, intervals: int) -> History:
    """The history of a worker whose residual counts the intervals."""
    history = History(2, WINDOW)
    for number in range(intervals):
        interval = Interval.of(2)
        interval.residual[DURATION, 1] = number
        history.remember(interval, begin=seconds * number, end=seconds * (number + 1), newcomers=())
    return history


@pytest.mark.parametrize("intervals", [1, 5, 6, 7, 12, 13, 30, 200])
@pytest.mark.parametrize("seconds", [1, 3, 25, 102, 1_000])
def test_all_intervals_of_the_window_are_there_newest_first(seconds: int, intervals: int) -> None:
    history = remembering(seconds, intervals)
    at = seconds * intervals
    order = history.within(at)
    expected = [number for number in range(intervals) if at - seconds * (number + 1) < WINDOW][::-1][:MAX_INTERVALS]
    assert history.residual[order, DURATION, 1].tolist() == expected
    assert np.isnan(history.residual[order, DURATION, 0]).all()
    assert [history.begin(back) for back in range(1, len(order) + 1)] == [seconds * number for number in expected]


def test_long_intervals_take_a_fraction_of_the_room() -> None:
    assert 10 * remembering(102, 100).nbytes < remembering(2, 200).nbytes
