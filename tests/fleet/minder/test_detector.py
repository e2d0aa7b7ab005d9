from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.fleet.minder.detector import (
    Minder,
    MinderFileError,
    lasting,
    load_minder,
    pairwise_scores,
    robust_scores,
)
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from tests.fleet.minder.test_network import random_autoencoder
from tests.straggler.clusters import METRICS, healthy, with_fault


def _series(values: np.ndarray, metrics: tuple[str, ...] = METRICS) -> MetricSeries:
    return MetricSeries.of(values, metrics=metrics)


@pytest.mark.parametrize("workers", [4, 64])
def test_a_worker_that_stays_lower_is_found_with_few_and_with_many(minder, workers):
    (finding,) = minder.find(_series(with_fault(workers, worker=2)))
    assert (finding.worker, finding.evidence[0].signal) == ("2", "cpu")
    assert finding.evidence[0].value < finding.evidence[0].low
    assert 190 <= finding.since <= 230
    assert finding.score > 1


def test_healthy_workers_are_left_alone(minder):
    assert [minder.find(_series(healthy(8, seed=seed))) for seed in range(5)] == [[]] * 5


def test_a_burst_of_three_minutes_is_no_fault(minder):
    values = healthy(16)
    values[0, 3, 200:380] -= 10
    assert minder.find(_series(values)) == []
    assert [f.worker for f in replace(minder, continuity_seconds=120).find(_series(values))] == ["3"]


def test_two_workers_get_no_blame(minder):
    assert minder.find(_series(with_fault(2, worker=1))) == []


def test_units_and_the_order_of_the_workers_do_not_matter(minder):
    values = with_fault(7, worker=4)
    before, after = minder.find(_series(values)), minder.find(_series(values[:, ::-1] * 1024 + 512))
    assert [(f.worker, f.since) for f in before] == [("4", after[0].since)]
    assert [f.worker for f in after] == ["2"]


def test_a_known_direction_accuses_nobody_who_does_better(minder):
    as_spill = Minder({"spill": minder.models["cpu"]})
    values = with_fault(16, worker=3)[:1]
    assert as_spill.find(_series(values, ("spill",))) == []
    (finding,) = as_spill.find(_series(-values, ("spill",)))
    assert (finding.worker, finding.cause) == ("3", Cause.DISK)


def test_a_table_is_as_good_as_an_array(minder):
    values = with_fault(5, worker=3)
    frame = pd.concat(
        pd.DataFrame({"at": np.arange(600.0) + 1000, "worker": f"w{i}", "host": "h", "cpu": values[0, i]})
        for i in range(5)
    )
    (finding,) = minder.find(frame.sample(frac=1, random_state=0))
    assert (finding.worker, finding.host) == ("w3", "h")
    assert 1190 <= finding.since <= 1230


def test_a_worker_that_left_accuses_nobody(minder):
    values = healthy(6)
    values[:, 2, 100:] = np.nan
    assert minder.find(_series(values)) == []


def test_metrics_that_it_was_not_trained_on_are_refused(minder):
    with pytest.raises(ValueError, match=r"none of the metrics \('other',\) was trained on"):
        minder.find(_series(healthy(4)[:1], ("other",)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"models": {}}, "models is empty"),
        ({"models": {"all": random_autoencoder(3)}}, "'all' takes 3 metrics"),
        ({"threshold": 0.0}, "threshold is 0.0"),
        ({"share": 1.1}, "share is 1.1"),
        ({"continuity_seconds": float("nan")}, "continuity_seconds is nan"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Minder(**({"models": {"cpu": random_autoencoder()}} | settings))


def _embeddings(workers: int, *, off: float) -> np.ndarray:
    random = np.random.default_rng(0)
    embeddings = 0.05 * random.standard_normal((workers, 6, 8)).astype(np.float32)
    embeddings[1] += np.float32(off)
    return embeddings


def test_the_papers_score_by_hand():
    # on a line at 0, 1 and 5: sums of distances 6, 5 and 9; mean 20/3, variance 26/9
    scores = pairwise_scores(np.array([0, 1, 5], np.float32).reshape(3, 1, 1))
    np.testing.assert_allclose(scores[:, 0], (np.array([6, 5, 9]) - 20 / 3) / np.sqrt(26 / 9), rtol=1e-4)


@pytest.mark.parametrize("workers", [4, 9])
def test_the_papers_score_is_bounded_by_the_number_of_workers_and_the_robust_one_is_not(workers):
    embeddings = _embeddings(workers, off=100.0)
    assert pairwise_scores(embeddings).max() <= np.sqrt(workers - 1) + 1e-3
    assert robust_scores(embeddings)[1].min() > 100


@pytest.mark.parametrize("score", [pairwise_scores, robust_scores])
def test_the_worker_that_is_off_has_the_highest_score(score):
    assert (score(_embeddings(300, off=3.0)).argmax(axis=0) == 1).all()


@pytest.mark.parametrize("score", [pairwise_scores, robust_scores])
def test_an_absent_worker_has_no_score_and_changes_nobody_elses(score):
    embeddings = _embeddings(9, off=2.0)
    absent = np.concatenate([embeddings, np.full((1, 6, 8), np.nan, np.float32)])
    scores = score(absent)
    assert np.isnan(scores[9]).all()
    np.testing.assert_allclose(scores[:9], score(embeddings), rtol=1e-4)


@pytest.mark.parametrize("score", [pairwise_scores, robust_scores])
def test_workers_that_are_all_alike_have_finite_scores(score):
    assert np.isfinite(score(np.ones((5, 2, 8), np.float32))).all()


MINDER = Minder(
    {"räte": random_autoencoder(seed=1), "cpu": random_autoencoder(seed=2)}, threshold=5.5, continuity_seconds=61.7
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    MINDER.save(tmp_path / "m.npz")
    return tmp_path / "m.npz"


def _forge(path: Path, **changes: Any) -> None:
    """The same file with other arrays; None takes one out."""
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays = {name: array for name, array in (arrays | changes).items() if array is not None}
    np.savez(path, **arrays)


def test_a_detector_comes_back_exactly(path):
    loaded = load_minder(path)
    assert (loaded.metrics, loaded.threshold, loaded.continuity_seconds, loaded.share) == (
        ("räte", "cpu"),
        5.5,
        61.7,
        0.9,
    )
    windows = np.random.default_rng(0).random((9, 8, 1)).astype(np.float32)
    for name in MINDER.metrics:
        assert np.array_equal(loaded.models[name].reconstruct(windows), MINDER.models[name].reconstruct(windows))


def test_it_goes_where_fsspec_goes():
    MINDER.save("memory://minder.npz")
    assert load_minder("memory://minder.npz").metrics == MINDER.metrics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": np.array(["other"])}, "found format 'other'"),
        ({"format": None}, "'format' is nothing"),
        ({"version": np.array([9])}, "found version 9"),
        ({"settings": np.array([1.0])}, "'settings' is float64"),
        ({"settings": np.array([-1.0, 1.0, 1.0])}, "threshold is -1.0"),
        ({"metrics": np.array(["cpu", "cpu"])}, "for metrics"),
        ({"metrics": np.array(["cpu"])}, "missing or too many"),
        ({"0.latent": None}, "0.latent"),
        ({"0.latent": np.zeros((4, 7), np.float32)}, "expected float32 of"),
        ({"0.latent": np.full((4, 8), np.nan, np.float32)}, "latent holds nan"),
        ({"0.latent": np.zeros(3, np.float32)}, "expected two dimensions"),
        ({"extra": np.zeros(3)}, "'extra'"),
    ],
)
def test_a_forged_file_is_refused_and_says_why(path, changes, message):
    _forge(path, **changes)
    with pytest.raises(MinderFileError, match=message):
        load_minder(path)


def test_nothing_in_a_file_is_ever_run(path):
    _forge(path, **{"0.latent": np.array([Path()], object)})
    with pytest.raises(MinderFileError, match="allow_pickle"):
        load_minder(path)


@pytest.mark.parametrize("size", [0, 1, 100, 1000])
def test_a_truncated_file_is_refused(path, size):
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(MinderFileError, match="m.npz"):
        load_minder(path)


def test_damage_is_noticed(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(MinderFileError):
        load_minder(path)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_minder(tmp_path / "none.npz")


def _row(text: str) -> np.ndarray:
    return np.array([[mark == "x" for mark in text]])


def test_what_holds_all_the_time_begins_at_the_first_instant():
    assert lasting(_row("xxxx"), length=4, share=1.0).tolist() == [0]


def test_a_burst_shorter_than_the_share_does_not_last():
    assert lasting(_row("..xxx....."), length=5, share=0.8).tolist() == [-1]


def test_what_comes_and_goes_lasts_if_it_holds_for_the_share():
    assert lasting(_row("...xx.xx.."), length=5, share=0.8).tolist() == [3]
    assert lasting(_row("...xx.xx.."), length=5, share=1.0).tolist() == [-1]


def test_it_begins_where_it_holds_and_not_where_the_stretch_does():
    assert lasting(_row("..xxxx"), length=5, share=0.8).tolist() == [2]


def test_a_stray_instant_is_not_where_it_begins():
    holds = np.zeros((1, 100), bool)
    holds[0, 3] = holds[0, 10:] = True
    assert lasting(holds, length=40, share=0.8).tolist() == [10]


def test_less_than_a_stretch_is_never_enough():
    assert lasting(_row("xxx"), length=4, share=0.5).tolist() == [-1]


def test_a_share_out_of_range_is_refused():
    with pytest.raises(ValueError, match="share is 1.5"):
        lasting(_row("xxx"), length=2, share=1.5)


@given(
    st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=4),
    st.integers(1, 12),
    st.floats(0.1, 1.0),
)
def test_it_agrees_with_counting_stretch_by_stretch(rows, length, share):
    expected = []
    for row in rows:
        needed = np.ceil(share * length - 1e-9)
        starts = [i for i in range(len(row) - length + 1) if sum(row[i : i + length]) >= needed]
        expected.append(starts[0] + row[starts[0] :].index(True) if starts else -1)
    assert lasting(np.array(rows), length=length, share=share).tolist() == expected
