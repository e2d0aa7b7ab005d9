from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dask_efficiency.simulation.model.accuracy import own_job, self_replay
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Simulated, SimulationJob
from dask_efficiency.simulation.model.requirements import SIMULATED
from dask_efficiency.simulation.model.result import COMPUTING_ERROR, MIN_MODEL_ERROR, Prediction, predict
from dask_efficiency.simulation.model.run_figures import makespan_seconds
from tests.simulation.fake_engine import FakeEngine, recorded


def predicted(workers: int, *, factor: float = 1.0, seeds: int = 4, **settings: Any) -> Prediction:
    engine, trace = FakeEngine(factor, **settings), recorded(**settings)
    job = SimulationJob(ClusterSpec.from_trace(trace).with_workers(workers))
    return predict(engine, trace, job, range(seeds), self_replay(engine, trace))


def test_the_makespan_is_the_median_of_the_seeds_and_is_not_corrected() -> None:
    found = predicted(8, factor=1.1)
    assert found.makespan_seconds == found.runs.median
    assert found.self_replay_error == pytest.approx(0.1, abs=0.05)
    assert found.makespan_seconds == pytest.approx(1.1 * predicted(8).makespan_seconds)


@pytest.mark.parametrize("factor", [1.0, 1.1, 0.9])
def test_tasks_that_sleep_have_the_interval_of_the_seeds_wider_by_what_the_simulation_is_off(factor: float) -> None:
    found = predicted(8, factor=factor, cpu_share=0.0)
    wider = 1 + max(abs(found.self_replay_error), MIN_MODEL_ERROR)
    low, high = found.runs.spread
    assert found.interval == pytest.approx((low / wider, high * wider))
    assert found.interval[0] < found.makespan_seconds < found.interval[1]


def test_what_computes_may_be_off_by_more_and_differs_from_run_to_run() -> None:
    sleeping, computing = predicted(8, cpu_share=0.0), predicted(8, cpu_share=1.0)
    assert computing.makespans == sleeping.makespans
    assert sleeping.model_error == MIN_MODEL_ERROR
    assert MIN_MODEL_ERROR < computing.model_error < COMPUTING_ERROR
    # Runs of less than a second differ by up to 12 %, the recorded and the next one: 1.645 * 0.12 * sqrt(2) = 0.28.
    assert sleeping.interval[1] / sleeping.makespan_seconds < 1.2
    assert 1.28 < computing.interval[1] / computing.makespan_seconds < 1.28 * 1.2


def test_the_model_is_off_by_at_least_what_the_self_replay_is() -> None:
    found = predicted(8, factor=1.2)
    assert found.model_error == abs(found.self_replay_error) > COMPUTING_ERROR


def test_its_trace_is_a_run_on_the_cluster_that_says_what_it_is() -> None:
    found = predicted(8)
    assert len(found.trace.workers) == 8
    assert found.trace.notes[-1] == SIMULATED
    assert makespan_seconds(found.trace) == pytest.approx(found.makespan_seconds, rel=0.1)
    assert sum(found.breakdown.values()) == pytest.approx(found.path.makespan_seconds)


def test_notes_of_the_engine_come_along_each_once() -> None:
    def noting(*arguments: Any, **options: Any) -> list[Simulated]:
        runs = FakeEngine()(*arguments, **options)
        return [replace(run, trace=run.trace and replace(run.trace, notes=("known", "new", SIMULATED))) for run in runs]

    trace = recorded()
    found = predict(noting, trace, own_job(trace), range(2), notes=("known",))
    assert found.notes == ("known", "new")
    assert found.trace.notes == ("known", "new", SIMULATED)


def test_more_workers_are_used_less() -> None:
    few, many = predicted(2), predicted(16)
    assert few.speedup < 1 < many.speedup
    assert 0 < many.efficiency < few.efficiency < 1
    assert many.efficiency < many.busy < few.busy
