from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import RunTrace
from dask_efficiency.simulation import calls
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import SeededJob, SimulationJob
from dask_efficiency.simulation.model.others import note_on_others, shares_of_others, waits_for_others
from dask_efficiency.simulation.model.result import Prediction, SelfReplay, own_job, predict, self_replay_job
from dask_efficiency.simulation.model.run_figures import RunFigures
from tests.runs.replay.test_replay import NO_DELAYS
from tests.simulation.fake_engine import FakeEngine, recorded

TASKS, COMPUTES, TOOK = 40, 90 * MS, 250 * MS


def crowded(others: float = 0.64, cores: float = 2.0, **fields: Any) -> RunTrace:
    """Tasks of 90 ms of CPU on two workers that took 250 ms each, as others had 64 % of the cores."""
    graph = Graph(["work"] * TASKS, [[]] * TASKS, [TOOK] * TASKS, [1] * TASKS, set(range(TASKS)))
    trace = simulate(graph, **({"workers": 2, "nthreads": 1} | NO_DELAYS))
    workers = tuple(replace(worker, cores=cores, others=others) for worker in trace.workers)
    runs = replace(trace.runs, cpu_ns=np.full(len(trace.runs), COMPUTES))
    return replace(trace, **({"workers": workers, "runs": runs, "core_waits": {"work": 1.0}} | fields))


def test_a_run_that_was_recorded_in_a_crowd_is_predicted_without_it() -> None:
    found = calls.simulate(trace := crowded(), seeds=2)
    alone = TASKS / 2 * COMPUTES / 1e9
    assert found.recorded.makespan_seconds == pytest.approx(TASKS / 2 * TOOK / 1e9, rel=0.02)
    assert abs(found.self_replay_error) < 0.02
    assert found.makespan_seconds == pytest.approx(alone, rel=0.1)  # Dask needs some of the two cores
    assert found.others_share == 0.64
    assert found.interval[0] < alone < found.interval[1]
    where = trace.workers[0].host
    assert found.notes[0] == (
        f"Other processes took 64 % of the cores of {where} while the run was recorded: predictions are without them, "
        "and less sure."
    )


def predicted(trace: RunTrace, job: SimulationJob) -> Prediction:
    own, runs = FakeEngine()(trace, [self_replay_job(trace, job), SeededJob(job, range(2))])
    return predict(trace, job, runs, SelfReplay(RunFigures.of(trace), own))


def test_the_interval_is_wider_the_fewer_cores_others_left() -> None:
    def error(others: float) -> float:
        quiet = recorded()
        trace = replace(quiet, workers=tuple(replace(one, cores=2.0, others=others) for one in quiet.workers))
        job = SimulationJob(ClusterSpec.from_trace(trace))
        return predicted(trace, job).model_error

    assert error(0.05) == error(0.0) < error(0.5) < error(0.8)
    assert error(1.0) == inf


def test_the_runs_own_job_has_the_others_and_a_prediction_has_not() -> None:
    assert own_job(crowded()).others
    assert not own_job(crowded(others=0.05)).others
    assert not own_job(recorded()).others
    trace = crowded()
    assert predicted(trace, own_job(trace)).notes == ()


def test_waits_are_those_that_a_report_sampled_and_else_follow_from_the_threads_that_were_ready() -> None:
    assert set(waits_for_others(crowded()).tolist()) == {TOOK - COMPUTES}
    assert set(waits_for_others(crowded(core_waits={"work": 0.5})).tolist()) == {(TOOK - COMPUTES) / 2}
    assert set(waits_for_others(crowded(others=0.0)).tolist()) == {0}
    trace = crowded(core_waits={})
    assert set(waits_for_others(trace).tolist()) == {0}
    rows = {name: np.zeros(2, column.dtype) for name, column in trace.series.columns().items()}
    for ready, waited in ((1.5, COMPUTES / 2), (9.0, TOOK - COMPUTES), (0.5, 0)):
        series = replace(trace.series, **(rows | {"run_queue": np.full(2, ready, np.float32)}))
        assert set(waits_for_others(replace(trace, series=series)).tolist()) == {waited}


def test_others_on_hosts_without_known_cores_are_not_known() -> None:
    assert shares_of_others(crowded(cores=0.0)) == {}
    assert note_on_others(crowded(cores=0.0)) == ()
