"""``benchmarks/studies/minder.py`` finds a machine that is plainly unlike the others, and judges by its onset."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.studies import minder
from benchmarks.studies.minder import (
    CONTINUITY,
    STRIDE,
    Found,
    Window,
    counts,
    farthest,
    furthest,
    mahalanobis,
    samples,
    strides,
)
from dask_efficiency.fleet.outliers.metric_series import MetricSeries

SECONDS, ONSET, BROKEN = 900, 300, 3


@pytest.fixture(scope="module")
def window() -> Window:
    """Ten machines of two metrics, one of which falls to half on one machine."""
    values = 1.0 + 0.01 * np.random.default_rng(0).standard_normal((2, 10, SECONDS))
    values[1, BROKEN, ONSET:] /= 2
    return Window(MetricSeries.of(values.astype(np.float32), metrics=("cpu", "nvlink")), (BROKEN,), ONSET)


SCORES: dict[str, Callable[[MetricSeries], np.ndarray]] = {
    "Manhattan": lambda series: farthest(samples(series, "nvlink"), 1),
    "Euclid": lambda series: farthest(samples(series, "nvlink")),
    "Chebyshev": lambda series: farthest(samples(series, "nvlink"), np.inf),
    "Mahalanobis": lambda series: mahalanobis(series, ("cpu", "nvlink")),
}


@pytest.mark.parametrize("name", SCORES)
def test_the_broken_machine_is_the_furthest_after_its_onset_and_no_more_than_others_before(window, name):
    scores = SCORES[name](window.series)
    onset = (ONSET + 60) // STRIDE
    assert np.nanmean(scores[:, onset:], axis=1).argmax() == BROKEN
    assert abs(np.nanmean(scores[BROKEN, : onset - 12])) < 0.7


def test_the_first_metric_in_which_a_machine_is_the_furthest_for_four_minutes_names_it(window: Window) -> None:
    found = furthest([SCORES["Euclid"](window.series)], CONTINUITY)
    (named,) = found.named[1.8].items()
    assert named[0] == BROKEN
    assert ONSET + CONTINUITY * STRIDE - 2 * STRIDE <= named[1] <= ONSET + CONTINUITY * STRIDE + 60
    assert counts([window], [found], 1.8)[0].tolist() == [[1, 0, 0]]
    assert found.named[11.0] == {}  # no z-score among ten machines is so high


def test_a_machine_that_is_named_before_its_onset_is_named_wrongly(window: Window) -> None:
    found = [Found({0.0: {BROKEN: at}}) for at in (ONSET - 1.0, ONSET + 1.0, math.nan)]
    assert counts([window] * 3, found, 0.0)[0].tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert counts([window] * 3, found, 0.0)[1] == [1.0]
    assert counts([window], [Found({0.0: {}})], 0.0)[0].tolist() == [[0, 0, 1]]


@pytest.mark.parametrize("name", minder.GENERATORS)
def test_each_generator_makes_windows_with_metrics_of_the_paper(name: str) -> None:
    make, train, tune, report = minder.GENERATORS[name]
    assert not {*train} & {*tune} | {*tune} & {*report} | {*train} & {*report}
    made = [make(seed) for seed in train[:4]]
    assert any(one.faulty for one in made)
    for one in made:
        assert len(minder.PAPERS & {*one.series.metrics}) >= minder.FEWER
        assert (one.onset >= 0) is bool(one.faulty)


@pytest.mark.parametrize("names", [["smd"], ["first", "asd"], ["smd", "asd"]])
def test_public_fleets_need_the_folder_that_they_are_in(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        minder.main(["--generator", *names])
    lacking = " and ".join(name for name in names if name != "first")
    assert f"{lacking} need --data FOLDER: data/processed of a checkout of InterFusion" in capsys.readouterr().err


def test_minutes_of_continuity_are_as_many_looks_as_the_pace_gives(window: Window) -> None:
    series = replace(window.series, step_seconds=15.0)
    assert strides(series) == 1
    found = furthest([farthest(samples(series, "nvlink"))], 16, 15.0)
    (named,) = found.named[1.8].items()
    assert named[0] == BROKEN
    assert 15 * (ONSET + 16 - 10) <= named[1] <= 15 * (ONSET + 16 + 4)
    assert [strides(replace(series, step_seconds=step)) for step in (1.0, 5.0, 10.0)] == [10, 2, 1]


def test_metrics_without_the_papers_names_are_all_taken_for_its_own() -> None:
    values = 1.0 + 0.01 * np.random.default_rng(0).standard_normal((2, 5, 60)).astype(np.float32)
    broken = values.copy()
    broken[1, 2, 20:] /= 2
    healthy, faulty = (MetricSeries.of(one, metrics=("m0", "m1"), step_seconds=15.0) for one in (values, broken))
    told = [Window(healthy, (), -1.0), Window(faulty, (2,), 300.0)]
    trained = minder.Trained.on([Window(healthy, (), -1.0)], 2, told)
    assert trained.papers == trained.names == ("m1", "m0")
    assert "more metrics" not in minder.methods(trained)
    names = {name for name, found in minder.judged(told, trained) if len(found) == 2}
    assert names == {minder.OURS, *minder.methods(trained)}


def test_a_metric_that_a_window_does_not_have_tells_no_machine_from_another(window: Window) -> None:
    missing = samples(window.series, "disk")
    assert missing.shape == samples(window.series, "cpu").shape
    assert not farthest(missing).any()
