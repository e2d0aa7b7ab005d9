from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dask_efficiency.straggler.history import History, Interval
from dask_efficiency.straggler.live_score import LiveScores, LiveScoring
from dask_efficiency.straggler.signals import DURATION

WINDOW_NS = 240_000_000_000
WORKERS = np.arange(3)


def scored(far: float, *, intervals: int, tasks: float, scoring: LiveScoring, scatter: float = 0.0) -> LiveScores:
    """Scores of three workers of which one is as far above the median as another one is below, in all intervals."""
    history = History(len(WORKERS), WINDOW_NS)
    ends = np.linspace(0, WINDOW_NS - 1, intervals + 1).astype(int).tolist()
    for number, (begin, end) in enumerate(itertools.pairwise(ends)):
        interval = Interval.of(len(WORKERS))
        off = scatter if number % 2 else -scatter
        interval.put(DURATION, WORKERS, np.array([off - far, off, off + far]), 0.0, tasks)
        history.remember(interval, begin=begin, end=end, newcomers=())
    work = scoring.score(history, "group", WORKERS, kernels=False, at=WINDOW_NS - 1)
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return ended.value


@pytest.mark.parametrize(("tasks", "enough"), [(4, False), (5, True)])
def test_few_tasks_are_enough_where_a_window_has_no_more(tasks: int, enough: bool) -> None:
    scores = scored(0.05, intervals=tasks, tasks=1.0, scoring=LiveScoring())
    assert np.isfinite(scores.mean[DURATION]).all() == enough


def test_the_limit_is_a_tenth_beyond_chance_and_more_for_few_workers() -> None:
    assert LiveScores.of(8, 2).limit == pytest.approx(1.1 * math.sqrt(2 * math.log(16)) * math.sqrt(1 + 1 / 7))


def test_the_usual_spread_follows_slowly() -> None:
    scoring = LiveScoring()
    for far in (0.01, 0.09):
        scored(far, intervals=7, tasks=3.0, scoring=scoring)
    usual = math.sqrt((0.95 * 0.01**2 + 0.05 * 0.09**2) / 2)
    now = scored(1e-3, intervals=7, tasks=3.0, scoring=scoring)
    assert now.z[DURATION, 2] == pytest.approx(1e-3 / math.hypot(usual, 0.03), rel=1e-3)


def test_intervals_that_scatter_make_a_mean_less_certain() -> None:
    steady, scattered = (scored(0.1, intervals=8, tasks=2.5, scoring=LiveScoring(), scatter=off) for off in (0, 0.3))
    scale = math.hypot(0.1 / math.sqrt(2), 0.03)
    assert steady.z[DURATION, 2] == pytest.approx(0.1 / scale)
    assert scattered.z[DURATION, 2] == pytest.approx(0.1 / math.hypot(scale, 0.3 / math.sqrt(7)))
