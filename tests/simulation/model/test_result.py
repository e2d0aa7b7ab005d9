from dataclasses import replace
from typing import Any

import pytest

from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob, SimulationJob
from dask_efficiency.simulation.model.requirements import SIMULATED, SimulationRefusedError
from dask_efficiency.simulation.model.result import (
    COMPUTING_ERROR,
    MIN_MODEL_ERROR,
    SEEDS,
    Prediction,
    SelfReplay,
    own_job,
    predict,
    self_replay_job,
)
from dask_efficiency.simulation.model.run_figures import RunFigures, makespan_seconds
from tests.simulation.fake_engine import FakeEngine, recorded
from tests.simulation.topologies import star


def off_by(share: float) -> SelfReplay:
    figures = RunFigures("a run", 10.0, 1, 1, 0.5, 0.5, {})
    return SelfReplay(figures, Ensemble({0: 10.0 * (1 + share)}))


def test_larger_partitions_have_an_interval_down_to_that_with_calls_alone() -> None:
    trace = recorded()
    (runs,) = FakeEngine()(trace, [SeededJob(SimulationJob(ClusterSpec.from_trace(trace)), range(3))])
    slow = predict(trace, SimulationJob(ClusterSpec.from_trace(trace), chunks=4), runs, off_by(0.0))
    found = replace(slow, calls_alone=0.25)
    assert found.makespan_seconds == pytest.approx(slow.makespan_seconds / 2)
    assert found.interval == pytest.approx((slow.interval[0] / 4, slow.interval[1]))


@pytest.mark.parametrize(
    ("share", "words", "doubted"),
    [
        (0.049, "4.9 % longer than it did", False),
        (-0.049, "4.9 % less than it did", False),
        (0.051, "5.1 % longer than it did", True),
        (-0.051, "5.1 % less than it did", True),
    ],
)
def test_an_error_above_5_percent_of_either_sign_is_doubted(share: float, words: str, doubted: bool) -> None:
    assert off_by(share).error == pytest.approx(share)
    assert off_by(share).outcome == f"Simulated on its own cluster, the run takes {words}"
    assert bool(off_by(share).doubt) == doubted


@pytest.mark.parametrize("share", [0.151, -0.151])
def test_an_error_above_15_percent_is_refused_without_force(share: float) -> None:
    off_by(0.149).require(force=False)
    off_by(share).require(force=True)
    with pytest.raises(SimulationRefusedError, match=r"15\.1 % .*expected at most 15 %: force=True"):
        off_by(share).require(force=False)


def test_the_own_job_has_the_known_network_and_cores_of_the_schedulers_host() -> None:
    trace = recorded()
    network = star(["head", *{worker.host for worker in trace.workers}], 1e8)
    given = replace(ClusterSpec.from_trace(trace), network=network, scheduler_host="head", cores={"head": 2})
    own = own_job(trace, SimulationJob(given)).cluster
    assert (own.network, own.scheduler_host, own.cores) == (network, "head", {"head": 2})


def test_a_self_replay_is_of_the_recorded_cluster_without_changes() -> None:
    trace = recorded()
    replayed = self_replay_job(trace, SimulationJob(ClusterSpec.from_trace(trace).with_workers(9)))
    assert [worker.name for worker in replayed.job.cluster.workers] == [worker.name for worker in trace.workers]
    assert not replayed.job.without
    assert len(replayed.seeds) == SEEDS
    (runs,) = FakeEngine(1.1)(trace, [replayed])
    assert SelfReplay(RunFigures.of(trace), runs).error == pytest.approx(0.1, abs=0.05)


def predicted(workers: int, *, factor: float = 1.0, **settings: Any) -> Prediction:
    engine, trace = FakeEngine(factor, **settings), recorded(**settings)
    job = SimulationJob(ClusterSpec.from_trace(trace).with_workers(workers))
    own, runs = engine(trace, [self_replay_job(trace, job), SeededJob(job, range(4))])
    return predict(trace, job, runs, SelfReplay(RunFigures.of(trace), own))


@pytest.mark.parametrize("factor", [1.0, 1.1, 0.9])
def test_sleeping_tasks_have_the_interval_of_the_seeds_widened_by_the_error_of_the_model(factor: float) -> None:
    found = predicted(8, factor=factor, cpu_share=0.0)
    wider = 1 + max(abs(found.self_replay_error), MIN_MODEL_ERROR)
    low, high = found.runs.spread
    assert found.interval == pytest.approx((low / wider, high * wider))
    assert found.interval[0] < found.makespan_seconds < found.interval[1]


def test_computing_has_a_larger_error_and_differs_from_run_to_run() -> None:
    sleeping, computing = predicted(8, cpu_share=0.0), predicted(8, cpu_share=1.0)
    assert computing.makespans == sleeping.makespans
    assert sleeping.model_error == MIN_MODEL_ERROR
    assert MIN_MODEL_ERROR < computing.model_error < COMPUTING_ERROR
    # Runs of less than a second differ by up to 12 %, the recorded and the next one: 1.645 * 0.12 * sqrt(2) = 0.28.
    assert sleeping.interval[1] / sleeping.makespan_seconds < 1.2
    assert 1.28 < computing.interval[1] / computing.makespan_seconds < 1.28 * 1.2
    found = predicted(8, factor=1.2)
    assert found.model_error == abs(found.self_replay_error) > COMPUTING_ERROR


def test_its_makespan_is_the_uncorrected_median_and_its_trace_a_run_on_the_cluster() -> None:
    found, longer = predicted(8), predicted(8, factor=1.1)
    assert found.makespan_seconds == found.runs.median
    assert longer.self_replay_error == pytest.approx(0.1, abs=0.05)
    assert longer.makespan_seconds == pytest.approx(1.1 * found.makespan_seconds)
    assert len(found.trace.workers) == 8
    assert found.trace.notes[-1] == SIMULATED
    assert makespan_seconds(found.trace) == pytest.approx(found.makespan_seconds, rel=0.1)
    assert sum(found.breakdown.values()) == pytest.approx(found.path.makespan_seconds)


def test_notes_of_the_engine_are_added_once_each() -> None:
    trace, job = recorded(), own_job(recorded())
    (runs,) = FakeEngine()(trace, [SeededJob(job, range(2))])
    assert runs.trace is not None
    noted = replace(runs, trace=replace(runs.trace, notes=("known", "new", SIMULATED)))
    found = predict(trace, job, noted, SelfReplay(RunFigures.of(trace), noted), notes=("known",))
    assert found.notes == ("known", "new")
    assert found.trace.notes == ("known", "new", SIMULATED)


def test_more_workers_are_used_less() -> None:
    few, many = predicted(2), predicted(16)
    assert few.speedup < 1 < many.speedup
    assert 0 < many.efficiency < few.efficiency < 1
    assert many.efficiency < many.busy < few.busy
