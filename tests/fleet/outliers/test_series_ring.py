from __future__ import annotations

import numpy as np

from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.series_ring import STEP_SECONDS, SeriesRing, series_of

NAN = np.nan


def ring(*reports: tuple[int, list[float]], steps: int = 8) -> SeriesRing:
    made = SeriesRing(2, steps)
    for step, values in reports:
        made.add(values, step)
    return made


def series(*rings: SeriesRing, first: int, last: int) -> MetricSeries:
    names = [f"w{i}" for i in range(len(rings))]
    return series_of(
        rings, metrics=["a", "b"], workers=names, groups=names, hosts=names, first=first, last=last, start=100.0
    )


def test_a_sample_is_the_mean_of_what_was_reported_in_its_step():
    found = ring((3, [1.0, NAN]), (3, [3.0, 4.0]), (3, [2.0, 6.0]), (4, [7.0, NAN])).read(np.arange(3, 6))
    np.testing.assert_array_equal(found, [[2, 5], [7, NAN], [NAN, NAN]])


def test_a_report_that_comes_late_changes_nothing():
    found = ring((4, [7.0, 7.0]), (3, [1.0, 1.0])).read(np.arange(3, 5))
    np.testing.assert_array_equal(found, [[NAN, NAN], [7, 7]])


def test_it_remembers_the_last_steps_and_takes_nothing_old_for_new():
    one = ring(*((step, [step, step]) for step in range(20)), (25, [25.0, 25.0]))
    # Step 25 has the place of 17, and 18 that of 26.
    np.testing.assert_array_equal(one.read(np.arange(17, 25))[:, 0], [NAN, 18, 19] + [NAN] * 5)
    np.testing.assert_array_equal(one.read(np.arange(20, 28))[:, 0], [NAN] * 5 + [25, NAN, NAN])


def test_its_memory_does_not_grow():
    one = SeriesRing(40, 240)
    before = one.nbytes
    for step in range(1_000):
        one.add([1.0] * 40, step)
    assert one.nbytes == before < 45_000


def test_a_series_has_the_metrics_that_somebody_has_and_every_worker():
    found = series(ring((5, [1.0, NAN])), ring((5, [2.0, NAN])), SeriesRing(2, 8), first=4, last=6)
    assert (found.metrics, found.workers) == (("a",), ("w0", "w1", "w2"))
    # Nobody had reported anything in step 4.
    assert (found.start, found.step_seconds) == (100.0 + STEP_SECONDS, STEP_SECONDS)
    np.testing.assert_array_equal(found.values, [[[1, 1], [2, 2], [NAN, NAN]]])


def test_workers_that_reported_nothing_yet_have_an_empty_series():
    found = series(SeriesRing(2, 8), first=4, last=6)
    assert (found.metrics, found.values.shape) == ((), (0, 1, 0))


def test_steps_between_two_heartbeats_are_filled_and_a_long_silence_is_not():
    seldom = ring((0, [1.0, NAN]), (2, [3.0, NAN]), steps=40)
    values = series(seldom, first=0, last=20).values[0, 0]
    np.testing.assert_array_equal(values[:9], [1, 1, 3, 3, 3, 3, 3, 3, 3])
    assert np.isnan(values[9:]).all()
