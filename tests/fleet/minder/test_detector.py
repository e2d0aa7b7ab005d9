from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.fleet.minder.detector import Minder, MinderFileError, load_minder
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
    assert [f.worker for f in minder.find(series(burst()), continuity_seconds=120)] == ["3"]


def test_a_worker_that_is_unlike_the_others_from_the_start_is_found_only_where_all_do_the_same(minder):
    values = healthy(16)
    values[:, 5] = np.array([80.0, 20.0])[:, None] + np.random.default_rng(3).standard_normal((2, 600)) / 9
    both = Minder(dict.fromkeys(METRICS, minder.models["cpu"]))
    assert [f.worker for f in both.find(series(values))] == ["5"]
    assert both.find(series(values), same_work=False) == []


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


@pytest.mark.parametrize("noise", [-0.2, 0.2])
def test_a_worker_that_swings_is_found_though_its_level_is_a_little_better(minder, noise):
    as_spilled = Minder({"spilled": minder.models["cpu"]})
    values = healthy(16)[:1]
    swings = np.random.default_rng(5).choice([-9.0, 9.0], 400)
    values[0, 3, 200:] += swings - swings.mean() + noise
    (finding,) = as_spilled.find(series(values, ("spilled",)))
    assert (finding.worker, finding.cause) == ("3", Cause.MEMORY)


@pytest.mark.parametrize("other", [-100, 100])
def test_a_worker_is_compared_with_its_own_group_alone(minder, other):
    as_spill = Minder({"spill": minder.models["cpu"]})
    alone, beside = -with_fault(8, worker=3)[:1], healthy(8, seed=1)[:1] + other
    (finding,) = as_spill.find(series(alone, ("spill",)))
    both = replace(series(np.concatenate([alone, beside], axis=1), ("spill",)), groups=(*"aaaaaaaabbbbbbbb",))
    (found,) = as_spill.find(both)
    assert (found.worker, found.cause) == (finding.worker, finding.cause)
    assert found.evidence[0].peers == pytest.approx(finding.evidence[0].peers)


@pytest.mark.parametrize("change", [-8, 8])
def test_a_host_is_compared_with_other_hosts(minder, change):
    as_steal = Minder({"steal": minder.models["cpu"]})
    values = np.repeat(healthy(8)[:1], 2, axis=1)
    values[0, 6:8, 200:] += change
    run = replace(series(values, ("steal",)), hosts=tuple(f"h{i // 2}" for i in range(16)))
    found = as_steal.find(run)
    assert [(one.host, one.workers) for one in found] == ([("h3", ("6", "7"))] if change > 0 else [])
    assert all(one.evidence[0].high < 52 for one in found)


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
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Minder(**({"models": {"cpu": random_autoencoder()}} | settings))


def test_the_worker_that_is_off_is_the_furthest_at_all_times_and_an_absent_one_has_no_distance(minder):
    present = healthy(9, seed=4)
    present[0, 1] -= 30.0
    absent = np.concatenate([present, np.full_like(present[:, :1], np.nan)], axis=1)
    away = minder.distances(series(absent)).values[minder.metrics.index("cpu")]
    assert (away[:9].argmax(axis=0) == 1).all()
    assert np.isnan(away[9]).all()
    np.testing.assert_allclose(away[:9], minder.distances(series(present)).values[0], rtol=1e-4)


def test_distances_are_to_the_peers_of_a_group_and_at_the_windows_last_samples(minder):
    values = healthy(8, seed=2)
    values[:, 4:] += 100
    both = replace(series(values), groups=(*"aaaabbbb",), start=50.0)
    of_group = minder.distances(replace(both.only(np.arange(4)), groups=("a",) * 4))
    assert minder.distances(both).start == 57.0
    assert minder.distances(both).values.shape == (2, 8, values.shape[2] - 7)
    assert (values[:, :4].max(axis=(1, 2)) < values[:, 4:].min(axis=(1, 2))).all()
    assert np.isfinite(of_group.values).all()
    np.testing.assert_allclose(minder.distances(both).values[:, :4], of_group.values, rtol=1e-4)


def test_a_long_run_is_looked_at_in_steps(minder):
    away = minder.distances(series(healthy(4, seconds=2500)))
    assert (away.step_seconds, away.values.shape[2]) == (3.0, 831)


MINDER = Minder({"räte": random_autoencoder(seed=1), "cpu": random_autoencoder(seed=2)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    MINDER.save(tmp_path / "m.model")
    return tmp_path / "m.model"


def test_a_detector_comes_back_exactly(path):
    loaded = load_minder(path)
    assert loaded.metrics == ("räte", "cpu")
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
