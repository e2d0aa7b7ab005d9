import json
import re
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_efficiency import ClusterSpec, ideal_ladder, load_trace, place, simulate, sweep
from dask_efficiency.runs.trace.errors import EmptyTraceError, UnknownNameError
from dask_efficiency.runs.trace.schema import Runs
from dask_efficiency.show.progress import StoppedWarning
from dask_efficiency.simulation import IdealLadder, Prediction, SimulationRefusedError, SimulationWarning, Sweep
from dask_efficiency.simulation.calls import engine as real_engine
from dask_efficiency.simulation.engine.launch import SimulationError
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob
from dask_efficiency.simulation.model.requirements import SIMULATED, UnplaceableError
from dask_efficiency.simulation.model.run_figures import makespan_seconds
from tests.report.samples import by_hand
from tests.simulated_traces import tree
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


def sizes(predictions: Sequence[Prediction]) -> list[int]:
    return [len(one.cluster.workers) for one in predictions]


def test_a_run_is_simulated_on_its_own_cluster_first_and_then_on_the_other(engine: FakeEngine, tmp_path: Path) -> None:
    found = simulate(recorded(), wider(8), seeds=3)
    assert [len(job.cluster.workers) for job in engine.jobs] == [4, 8]
    assert sorted(found.makespans) == [0, 1, 2]
    assert isinstance(found, Prediction)
    # Its run can be explained and saved like any other.
    assert found.critical_path().seconds() == found.breakdown
    found.trace.save(tmp_path / "predicted.trace")
    read = load_trace(tmp_path / "predicted.trace")
    assert SIMULATED in read.notes
    assert "is a simulation itself" in simulate(read, seeds=2).notes[-1]


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


def test_more_workers_are_copies_of_those_of_the_cluster(engine: FakeEngine) -> None:
    assert len(simulate(recorded(), workers=8, seeds=2).cluster.workers) == 8
    assert simulate(recorded(), wider(8), workers=2, seeds=2).cluster == wider(8).with_workers(2)
    assert sizes(sweep(recorded(), "2..8", seeds=1).predictions) == [2, 4, 8]
    engine.jobs.clear()
    assert sizes(sweep(recorded(), [8, 2], nthreads=1, seeds=2).predictions) == [2, 8]
    # The own cluster is simulated once.
    assert [(len(job.cluster.workers), job.cluster.nthreads) for job in engine.jobs] == [(4, 8), (2, 2), (8, 8)]


def test_memory_is_that_of_each_worker(engine: FakeEngine) -> None:
    own = ClusterSpec.from_trace(recorded())
    found = simulate(recorded(), memory_limit="3 GiB", seeds=2)
    assert found.cluster == own.with_workers(4, memory_limit=3 * 2**30)
    assert "with 3.0 GiB each" in found.headline
    engine.jobs.clear()
    swept = sweep(recorded(), memory_limit="1GiB..4GiB", cluster=own.with_workers(2), seeds=1)
    assert [(len(one.cluster.workers), swept.size(one) / 2**30) for one in swept.predictions] == [
        (2, 1),
        (2, 2),
        (2, 4),
    ]
    assert [job.cluster.workers[0].memory_limit for job in engine.jobs[1:]] == [2**30, 2 * 2**30, 4 * 2**30]
    assert swept.to_dict()["best_memory_limit"] == swept.size(swept.best)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": [2], "memory_limit": "1GiB"}, "workers and memory_limit are given"),
        ({"memory_limit": "1GiB", "price_per_worker_hour": 1.0}, "not for memory_limit"),
        ({"memory_limit": "0"}, "expected 1 MB or more"),
    ],
)
def test_a_sweep_of_memory_refuses_what_does_not_fit(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sweep(recorded(), **arguments)


def test_sizes_with_which_a_run_does_not_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask_efficiency.simulation.memory_limits.LEAST_MEMORY", 1)  # its results are small
    trace = recorded()
    most = int(np.maximum(trace.tasks.nbytes, 0).max())
    # A task that needs two such results fits into no worker of less than both.
    with simulated_by(StandsStill(2)):
        found = sweep(trace, memory_limit=[most, 2**30, 2**31], seeds=1)
    assert [found.size(one) for one in found.predictions] == [2**31]
    assert list(found.impossible) == [most, 2**30]
    assert "Dask lets such a task fail" in found.impossible[most]
    assert found.to_dict()["impossible"][str(2**30)] == "it waits"
    with simulated_by(StandsStill(2)), pytest.raises(SimulationError, match="it waits"):
        sweep(trace, [2], seeds=1)
    with pytest.raises(UnplaceableError, match="Dask lets such a task fail"):
        sweep(trace, memory_limit=[most], seeds=1)


def test_a_simulation_that_is_off_warns_and_one_that_is_far_off_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(recorded(), wider(8), seeds=2)
    with simulated_by(FakeEngine(1.1)), pytest.warns(SimulationWarning, match="own cluster"):
        simulate(recorded(), wider(8), seeds=2)
    with simulated_by(FakeEngine(1.3)) as engine:
        for predict in (partial(simulate, cluster=wider(8)), simulate, partial(sweep, workers=[2]), ideal_ladder):
            engine.jobs.clear()
            with pytest.raises(SimulationRefusedError):
                predict(recorded(), seeds=2)
            assert len(engine.jobs) == 1, "nothing else is simulated"
            with pytest.warns(SimulationWarning):
                predict(recorded(), seeds=2, force=True)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"trace": "run.trace"}, TypeError, "expected a recorded run"),
        ({"trace": replace(recorded(), runs=Runs.empty())}, EmptyTraceError, "no task"),
        ({"trace": replace(recorded(), dropped={"runs": 5})}, SimulationRefusedError, "5 runs"),
        ({"trace": replace(recorded(), constraints={0: {"restrictions": ["w9"]}})}, UnplaceableError, "'w9'"),
        ({"seeds": 0}, ValueError, "seeds is 0"),
        ({"without": ["disk"]}, UnknownNameError, "disk"),
        ({"speed_up": {"sun": 2.0}}, UnknownNameError, "no prefix 'sun'"),
        ({"speed_up": {"sum": 0.0}}, ValueError, "expected a number above 0"),
        ({"cluster": "lab.yaml"}, TypeError, "expected a ClusterSpec"),
        ({"cluster": "lab.yaml", "workers": 4}, TypeError, "expected a ClusterSpec"),
        ({"gil": {"nothing": 1.0}}, UnknownNameError, "'nothing'"),
        ({"gil": {"sum": 2.0}}, ValueError, "is 2.0; expected the share"),
    ],
)
def test_mistakes_are_named_before_anything_runs(
    engine: FakeEngine, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        simulate(**{"trace": recorded()} | arguments)
    assert not engine.jobs


def test_a_sweep_is_checked_for_all_its_sizes_before_anything_runs(engine: FakeEngine) -> None:
    with pytest.raises(UnplaceableError, match="'w3'"):
        sweep(replace(recorded(), constraints={0: {"restrictions": ["w3"]}}), [4, 2])
    for price in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="price_per_worker_hour"):
            sweep(recorded(), [2], price_per_worker_hour=price)
    assert not engine.jobs


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
    files[1] = (tmp_path / "other" / "few.txt").absolute()
    files[1].write_text("pc0:1\n")
    found = place(recorded(), tmp_path / "lab.yaml", files, seeds=3)
    assert {one.name for one in found.ranked} == {*map(str, files)}
    with pytest.raises(ValueError, match="hostfiles is empty"):
        place(recorded(), tmp_path / "lab.yaml", [])


@pytest.mark.parametrize("make", [elsewhere, swept, placed, lambda: ideal_ladder(recorded(), seeds=2)])
def test_each_shows_itself_everywhere(make: Any, tmp_path: Path) -> None:
    found = make()
    text = " ".join(str(found).split())
    assert found.headline in text
    assert "own cluster" in text
    assert "How sure this is" in found._repr_html_()
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    for html in (found._repr_html_(), page) if isinstance(found, Sweep) else ():
        assert "de-curve" in html
        assert html.count("<circle") == 4
    if isinstance(found, IdealLadder) and find_spec("pandas"):
        assert found.to_frame().step.tolist()[:2] == ["measured", "simulated as it was"]
        assert found.to_frame().seconds[2:].is_monotonic_decreasing
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["self_replay_error"] == pytest.approx(found.to_dict()["self_replay_error"])


def test_no_name_becomes_markup(tmp_path: Path) -> None:
    found = predicted(hostile_trace(), 4)
    found.to_html(tmp_path / "page.html")
    for html in (found._repr_html_(), (tmp_path / "page.html").read_text()):
        for smuggled in ("<script>alert", "<img", "\x1b", "\u202e"):
            assert smuggled not in html
    assert "\x1b" not in str(found)


def test_a_report_shows_predictions_from_its_trace(tmp_path: Path) -> None:
    report = by_hand(trace=recorded())
    for predictions in ([elsewhere(), swept()], []):
        report.to_html(tmp_path / "page.html", predictions=predictions)
        shown = "Simulation: what it would take elsewhere" in (tmp_path / "page.html").read_text()
        assert shown == bool(predictions)


@pytest.mark.filterwarnings("ignore::dask_efficiency.simulation.SimulationWarning")
def test_the_real_engine_measures_as_a_recorded_run_is_measured() -> None:
    with simulated_by(real_engine):
        found = simulate(replace(tree(16), versions={}), seeds=[1], force=True)
    assert makespan_seconds(found.trace) == pytest.approx(found.makespans[found.runs.nearest], rel=1e-6)
    assert len(found.trace.tasks) == 31
    assert found.efficiency > 0


def test_facts_about_the_recorded_hosts_are_used_for_the_own_cluster_too(engine: FakeEngine) -> None:
    trace = recorded()
    own = ClusterSpec.from_trace(trace)
    host = own.workers[0].host
    simulate(trace, own.with_workers(8).with_cores({host: 2}), gil={trace.prefixes[0]: 1.0}, seeds=1)
    judge, asked = engine.jobs
    assert judge.cluster == own.with_cores({host: 2})
    assert judge.gil == asked.gil == {trace.prefixes[0]: 1.0}


class StandsStill(FakeEngine):
    """An engine whose job of a number, from 1, stands still."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def __call__(self, trace: Any, jobs: Sequence[SeededJob], **options: Any) -> Generator[Ensemble, None, None]:
        for number, runs in enumerate(super().__call__(trace, jobs, **options), 1):
            yield Ensemble({}, stands_still="it waits") if number == self.number else runs


class Interrupted(FakeEngine):
    """An engine during whose job of a number Ctrl-C is pressed."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def __call__(self, trace: Any, jobs: Sequence[SeededJob], **options: Any) -> Generator[Ensemble, None, None]:
        yield from super().__call__(trace, jobs[: self.number], **options)
        options["report"](sum(len(seeded.seeds) for seeded in jobs[: self.number]) + 0.5)
        raise KeyboardInterrupt


def test_a_sweep_keeps_its_rows_and_names_the_missing_ones() -> None:
    with simulated_by(Interrupted(3)), pytest.warns(StoppedWarning, match="after 2 of 4 numbers of workers"):
        found = sweep(recorded(), [1, 2, 4, 8], seeds=2)
    assert [len(one.cluster.workers) for one in found.predictions] == [1, 2]
    assert found.not_simulated == (4, 8)
    assert found.to_dict()["not_simulated"] == [4, 8]
    assert "ended early" in found.document.context
    assert "not simulated: numbers of workers 4, 8" in str(found)


def test_placements_keep_the_best_so_far_and_name_the_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(LAB)
    files = [tmp_path / f"{number}.hosts" for number in range(4)]
    for number, file in enumerate(files):
        file.write_text(f"pc{number % 2}:2\n")
    with simulated_by(Interrupted(2)), pytest.warns(StoppedWarning, match="after 1 of 4 placements"):
        found = place(recorded(), tmp_path / "lab.yaml", files, seeds=2)
    assert [one.name for one in found.ranked] == ["0"]
    assert found.to_dict()["not_simulated"] == [*found.not_simulated] == ["1", "2", "3"]
    assert "not simulated: placements 1, 2, 3" in str(found)


@pytest.mark.parametrize(("number", "runs"), [(0, 0), (1, 5)])
def test_a_simulation_that_is_interrupted_names_the_runs_that_are_done(number: int, runs: int) -> None:
    with simulated_by(Interrupted(number)), pytest.raises(KeyboardInterrupt, match=f"^simulating: {runs} of 7 runs$"):
        simulate(recorded(), workers=2, seeds=2)
