from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.simulated_traces import tree
from dask_efficiency import ClusterSpec, RunTrace, ideal_ladder, load_trace, place, simulate, sweep
from dask_efficiency.runs.trace.errors import EmptyTraceError, UnknownNameError
from dask_efficiency.runs.trace.schema import Runs
from dask_efficiency.simulation import Prediction, SimulationRefusedError, SimulationWarning
from dask_efficiency.simulation.calls import engine as real_engine
from dask_efficiency.simulation.model.requirements import SIMULATED, UnplaceableError
from dask_efficiency.simulation.model.run_figures import makespan_seconds
from tests.report.samples import by_hand
from tests.simulation.fake_engine import FakeEngine, recorded
from tests.simulation.simulation_samples import elsewhere, hostile_trace, placed, predicted, simulated_by, swept

#: A cluster's file.
LAB = """
switches: [floor]
hosts:
  pc[0-3]: {slots: 2, switch: floor, bandwidth: 1 Gbit}
"""


@pytest.fixture(autouse=True)
def engine() -> Iterator[FakeEngine]:
    with simulated_by(FakeEngine()) as engine:
        yield engine


def wider(workers: int) -> ClusterSpec:
    return ClusterSpec.from_trace(recorded()).with_workers(workers)


def test_a_run_is_simulated_on_its_own_cluster_first_and_then_on_the_other(engine: FakeEngine) -> None:
    found = simulate(recorded(), wider(8), seeds=3)
    assert [len(job.cluster.workers) for job in engine.jobs] == [4, 8]
    assert sorted(found.makespans) == [0, 1, 2]
    assert isinstance(found, Prediction)
    assert isinstance(found.trace, RunTrace)


def test_without_a_cluster_it_is_a_self_replay_and_runs_once(engine: FakeEngine) -> None:
    for cluster in (None, ClusterSpec.from_trace(recorded())):
        engine.jobs.clear()
        assert simulate(recorded(), cluster, seeds=3).is_self_replay
        assert len(engine.jobs) == 1
    assert not simulate(recorded(), seeds=5, without=["spill"]).is_self_replay


def test_changes_go_to_the_engine_as_factors_of_time(engine: FakeEngine) -> None:
    simulate(recorded(), seeds=2, speed_up={"sum": 4.0}, without="transfer", validate=True)
    own, changed = engine.jobs
    assert (own.prefixes, own.without) == (None, frozenset())
    assert (changed.prefixes, changed.without, changed.validate) == ({"sum": 0.25}, {"transfer"}, True)


def test_so_many_workers_are_copies_of_those_of_the_cluster() -> None:
    assert len(simulate(recorded(), workers=8, seeds=2).cluster.workers) == 8
    found = simulate(recorded(), wider(8), workers=2, seeds=2).cluster
    assert found == wider(8).with_workers(2)
    assert [len(one.cluster.workers) for one in sweep(recorded(), "2..8", seeds=1).predictions] == [2, 4, 8]


def test_its_run_can_be_explained_and_saved_like_any_other(tmp_path: Path) -> None:
    found = simulate(recorded(), wider(8), seeds=3)
    assert found.critical_path().seconds() == found.breakdown
    found.trace.save(tmp_path / "predicted.trace")
    read = load_trace(tmp_path / "predicted.trace")
    assert SIMULATED in read.notes
    assert "is a simulation itself" in simulate(read, seeds=2).notes[-1]


def test_a_simulation_that_is_off_warns_and_one_that_is_far_off_is_refused() -> None:
    with simulated_by(FakeEngine(1.1)), pytest.warns(SimulationWarning, match="own cluster"):
        simulate(recorded(), wider(8), seeds=2)
    with simulated_by(FakeEngine(1.3)) as engine:
        for predict in (
            lambda **options: simulate(recorded(), wider(8), **options),
            lambda **options: simulate(recorded(), **options),
            lambda **options: sweep(recorded(), [2], **options),
            lambda **options: ideal_ladder(recorded(), **options),
        ):
            engine.jobs.clear()
            with pytest.raises(SimulationRefusedError):
                predict(seeds=2)
            assert len(engine.jobs) == 1, "nothing else is simulated"
            with pytest.warns(SimulationWarning):
                predict(seeds=2, force=True)


def test_a_simulation_that_fits_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(recorded(), wider(8), seeds=2)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"seeds": 0}, ValueError, "seeds is 0"),
        ({"without": ["disk"]}, UnknownNameError, "disk"),
        ({"speed_up": {"sun": 2.0}}, UnknownNameError, "no prefix 'sun'"),
        ({"speed_up": {"sum": 0.0}}, ValueError, "expected a number above 0"),
        ({"cluster": "lab.yaml"}, TypeError, "expected a ClusterSpec"),
        ({"cluster": "lab.yaml", "workers": 4}, TypeError, "expected a ClusterSpec"),
    ],
)
def test_what_is_wrong_is_named_before_anything_runs(
    engine: FakeEngine, arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        simulate(recorded(), **arguments)
    assert not engine.jobs


def test_a_trace_that_cannot_be_simulated_is_refused_before_anything_runs(engine: FakeEngine) -> None:
    with pytest.raises(TypeError, match="expected a recorded run"):
        simulate("run.trace")  # type: ignore[arg-type]
    with pytest.raises(EmptyTraceError):
        simulate(replace(recorded(), runs=Runs.empty()))
    with pytest.raises(SimulationRefusedError, match="5 runs"):
        sweep(replace(recorded(), dropped={"runs": 5}), [2])
    with pytest.raises(UnplaceableError, match="'w3'"):
        sweep(replace(recorded(), constraints={0: {"restrictions": ["w3"]}}), [2, 4])
    assert not engine.jobs


def test_a_sweep_simulates_the_own_cluster_once_and_each_size(engine: FakeEngine) -> None:
    found = sweep(recorded(), [8, 2], nthreads=1, seeds=2)
    assert [(len(job.cluster.workers), job.cluster.nthreads) for job in engine.jobs] == [(4, 8), (2, 2), (8, 8)]
    assert [len(one.cluster.workers) for one in found.predictions] == [2, 8]


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf")])
def test_a_price_that_is_none_is_refused(price: float) -> None:
    with pytest.raises(ValueError, match="price_per_worker_hour"):
        sweep(recorded(), [2], price_per_worker_hour=price)


def test_placements_are_ranked(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(LAB)
    (tmp_path / "few.hosts").write_text("pc0:1\npc1:1\n")
    (tmp_path / "many.hosts").write_text("pc0:2\npc1:2\npc2:2\n")
    files = [tmp_path / "few.hosts", tmp_path / "many.hosts"]
    found = place(recorded(), tmp_path / "lab.yaml", files, seeds=3)
    assert [one.name for one in found.ranked] == ["many", "few"]
    assert found.is_clear
    assert "few takes" in str(found)
    assert "fullest link" in str(found)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "few.txt").write_text("pc0:1\n")
    files[1] = tmp_path / "other" / "few.txt"
    found = place(recorded(), tmp_path / "lab.yaml", files, seeds=3)
    assert {one.name for one in found.ranked} == {*map(str, files)}
    with pytest.raises(ValueError, match="hostfiles is empty"):
        place(recorded(), tmp_path / "lab.yaml", [])


def test_a_ladder_is_a_table_as_well() -> None:
    pytest.importorskip("pandas")
    frame = ideal_ladder(recorded(), seeds=2).to_frame()
    assert frame.step.tolist()[:2] == ["measured", "simulated as it was"]
    assert frame.seconds[2:].is_monotonic_decreasing


@pytest.mark.parametrize("make", [elsewhere, swept, placed, lambda: ideal_ladder(recorded(), seeds=2)])
def test_each_shows_itself_everywhere(make: Any, tmp_path: Path) -> None:
    found = make()
    said = " ".join(str(found).split())
    assert found.headline in said
    assert "own cluster" in said
    assert "How sure this is" in found._repr_html_()
    found.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["self_replay_error"] == pytest.approx(found.to_dict()["self_replay_error"])


def test_a_notebook_and_a_page_have_the_plot_of_a_sweep(tmp_path: Path) -> None:
    swept().to_html(tmp_path / "page.html")
    for html in (swept()._repr_html_(), (tmp_path / "page.html").read_text()):
        assert "de-curve" in html
        assert html.count("<circle") == 4


def test_no_name_becomes_markup(tmp_path: Path) -> None:
    found = predicted(hostile_trace(), 4)
    found.to_html(tmp_path / "page.html")
    for html in (found._repr_html_(), (tmp_path / "page.html").read_text()):
        for smuggled in ("<script>alert", "<img", "\x1b", "\u202e"):
            assert smuggled not in html
    assert "\x1b" not in str(found)


def test_a_report_shows_predictions_from_its_trace(tmp_path: Path) -> None:
    report = by_hand(trace=recorded())
    report.to_html(tmp_path / "with.html", predictions=[elsewhere(), swept()])
    report.to_html(tmp_path / "without.html")
    assert "Simulation: what it would take elsewhere" in (tmp_path / "with.html").read_text()
    assert "Simulation: what it would take elsewhere" not in (tmp_path / "without.html").read_text()


@pytest.mark.filterwarnings("ignore::dask_efficiency.simulation.SimulationWarning")
def test_the_real_engine_measures_as_a_recorded_run_is_measured() -> None:
    with simulated_by(real_engine):
        found = simulate(replace(tree(16), versions={}), seeds=[1], force=True)
    assert makespan_seconds(found.trace) == pytest.approx(found.makespans[found.runs.nearest], rel=1e-6)
    assert len(found.trace.tasks) == 31
    assert found.efficiency > 0


def test_what_is_known_of_the_recorded_hosts_is_known_of_the_own_cluster_too(engine: FakeEngine) -> None:
    trace = recorded()
    own = ClusterSpec.from_trace(trace)
    host = own.workers[0].host
    simulate(trace, own.with_workers(8).with_cores({host: 2}), gil={trace.prefixes[0]: 1.0}, seeds=1)
    judge, asked = engine.jobs
    assert judge.cluster == own.with_cores({host: 2})
    assert judge.gil == asked.gil == {trace.prefixes[0]: 1.0}


def test_shares_of_the_lock_are_checked_before_anything_runs(engine: FakeEngine) -> None:
    with pytest.raises(UnknownNameError, match="'nothing'"):
        simulate(recorded(), gil={"nothing": 1.0})
    with pytest.raises(ValueError, match=r"is 2\.0; expected the share"):
        simulate(recorded(), gil={recorded().prefixes[0]: 2.0})
    assert not engine.jobs
