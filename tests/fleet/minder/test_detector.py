from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.fleet.minder.detector import Minder, MinderFileError, lasting, load_minder, robust_scores
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.runs.trace.archive import pack
from tests.fleet.minder.test_network import random_autoencoder
from tests.runs.trace.archives import Change, forged, set_to
from tests.straggler.clusters import METRICS, healthy, with_fault


def series(values: np.ndarray, metrics: tuple[str, ...] = METRICS) -> MetricSeries:
    return MetricSeries.of(values, metrics=metrics)


@pytest.mark.parametrize("workers", [4, 64])
def test_a_worker_that_stays_lower_is_found_with_few_and_with_many(minder, workers):
    (finding,) = minder.find(series(with_fault(workers, worker=2)))
    assert (finding.worker, finding.evidence[0].signal) == ("2", "cpu")
    assert finding.evidence[0].value < finding.evidence[0].low
    assert 190 <= finding.since <= 230
    assert finding.score > 1


def burst() -> np.ndarray:
    """Healthy workers, one of which is lower for three minutes."""
    values = healthy(16)
    values[0, 3, 200:380] -= 10
    return values


def left() -> np.ndarray:
    values = healthy(6)
    values[:, 2, 100:] = np.nan
    return values


@pytest.mark.parametrize(
    "values",
    [*(healthy(8, seed=seed) for seed in range(5)), with_fault(2, worker=1), burst(), left()],
    ids=[*(f"healthy {seed}" for seed in range(5)), "two workers", "a burst of three minutes", "a worker that left"],
)
def test_no_worker_is_found_without_a_lasting_fault_among_peers(minder, values):
    assert minder.find(series(values)) == []


def test_a_burst_is_a_fault_if_less_continuity_is_asked_for(minder):
    assert [f.worker for f in replace(minder, continuity_seconds=120).find(series(burst()))] == ["3"]


def test_units_and_the_order_of_the_workers_do_not_matter(minder):
    values = with_fault(7, worker=4)
    before, after = minder.find(series(values)), minder.find(series(values[:, ::-1] * 1024 + 512))
    assert [(f.worker, f.since) for f in before] == [("4", after[0].since)]
    assert [f.worker for f in after] == ["2"]


def test_with_a_known_direction_no_better_worker_is_found(minder):
    as_spill = Minder({"spill": minder.models["cpu"]})
    values = with_fault(16, worker=3)[:1]
    assert as_spill.find(series(values, ("spill",))) == []
    (finding,) = as_spill.find(series(-values, ("spill",)))
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


def test_metrics_that_it_was_not_trained_on_are_refused(minder):
    with pytest.raises(ValueError, match=r"none of the metrics \('other',\) was trained on"):
        minder.find(series(healthy(4)[:1], ("other",)))


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


def embeddings(workers: int, *, off: float) -> np.ndarray:
    found = 0.05 * np.random.default_rng(0).standard_normal((workers, 6, 8)).astype(np.float32)
    found[1] += np.float32(off)
    return found


def test_the_worker_that_is_off_has_the_highest_score_and_an_absent_one_none():
    assert (robust_scores(embeddings(300, off=3.0)).argmax(axis=0) == 1).all()
    present = embeddings(9, off=2.0)
    scores = robust_scores(np.concatenate([present, np.full((1, 6, 8), np.nan, np.float32)]))
    assert np.isnan(scores[9]).all()
    np.testing.assert_allclose(scores[:9], robust_scores(present), rtol=1e-4)
    assert np.isfinite(robust_scores(np.ones((5, 2, 8), np.float32))).all()


MINDER = Minder(
    {"räte": random_autoencoder(seed=1), "cpu": random_autoencoder(seed=2)}, threshold=5.5, continuity_seconds=61.7
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    MINDER.save(tmp_path / "m.model")
    return tmp_path / "m.model"


def test_a_detector_comes_back_exactly(path):
    loaded = load_minder(path)
    assert loaded.metrics == ("räte", "cpu")
    assert (loaded.threshold, loaded.continuity_seconds, loaded.share) == (5.5, 61.7, 0.9)
    windows = np.random.default_rng(0).random((9, 8, 1)).astype(np.float32)
    for name in MINDER.metrics:
        assert np.array_equal(loaded.models[name].reconstruct(windows), MINDER.models[name].reconstruct(windows))


def test_a_detector_is_saved_to_a_url_and_loaded_from_it():
    MINDER.save("memory://minder.model")
    assert load_minder("memory://minder.model").metrics == MINDER.metrics
    with pytest.raises(FileNotFoundError):
        load_minder("memory://none.npz")


def _latent(weights: np.ndarray) -> Change:
    """Other weights in place of a part of the first model's."""

    def change(described: dict[str, Any], members: dict[str, bytes]) -> None:
        packing, members["0/latent/values"], _ = pack(weights.view(np.int32), {})
        described["columns"]["0/latent"] = {"rows": len(weights), "columns": {"values": [*astuple(packing)]}}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_to("format", to="other"), "found format 'other'"),
        (set_to("version", to=9), "found version 9"),
        (set_to("threshold", to=-1.0), "threshold is -1.0"),
        (set_to("share", to="x"), "'share' is 'x'; expected float"),
        (set_to("metrics", to=["a", "b", "c"]), "'columns.2/encoder_input' is None"),
        (set_to("metrics", to=[]), "models is empty"),
        (set_to("metrics", to=["cpu", "cpu"]), "metric 'cpu' is there twice"),
        (_latent(np.zeros(28, np.float32)), "cannot reshape"),
        (_latent(np.full(32, np.nan, np.float32)), "latent holds nan"),
    ],
)
def test_a_forged_file_is_refused_with_the_reason(path, change, message):
    path.write_bytes(forged(path.read_bytes(), "minder.json", change))
    with pytest.raises(MinderFileError, match=f"m.model: .*{message}"):
        load_minder(path)


def test_a_stray_instant_is_not_where_a_condition_begins_to_last():
    holds = "...x......" + 90 * "x"
    assert lasting(np.array([[mark == "x" for mark in holds]]), length=40, share=0.8).tolist() == [10]


@given(
    st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=4),
    st.integers(1, 12),
    st.floats(0.1, 1.0),
)
def test_lasting_agrees_with_a_count_stretch_by_stretch(rows, length, share):
    expected = []
    for row in rows:
        needed = np.ceil(share * length - 1e-9)
        starts = [i for i in range(len(row) - length + 1) if sum(row[i : i + length]) >= needed]
        expected.append(starts[0] + row[starts[0] :].index(True) if starts else -1)
    assert lasting(np.array(rows), length=length, share=share).tolist() == expected


def test_nothing_lasts_in_fewer_instants_than_a_stretch():
    assert lasting(np.ones((2, 3), bool), length=4, share=0.5).tolist() == [-1, -1]
