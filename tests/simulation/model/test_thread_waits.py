from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.runs.trace.schema import Runs, Series
from dask_efficiency.simulation import calls
from dask_efficiency.simulation.model.calibration import calibrate
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.cores import BACKGROUND
from dask_efficiency.simulation.model.ensemble import SeededJob, SimulationJob
from dask_efficiency.simulation.model.result import Prediction, SelfReplay, own_job, predict, self_replay_job
from dask_efficiency.simulation.model.run_figures import RunFigures
from dask_efficiency.simulation.model.thread_waits import (
    check_shares,
    core_waits,
    few_cores,
    note_on_others,
    read_gil,
    shares_of_others,
    waits_for_others,
)
from tests.runs.replay.test_replay import NO_DELAYS
from tests.runs.trace.samples import damaged_traces
from tests.simulated_traces import MS, Graph, simulate
from tests.simulation.fake_engine import FakeEngine
from tests.simulation.fake_engine import recorded as figures_of


def recorded(cpu_share: float, *, nthreads: int = 2, tasks: int = 8) -> RunTrace:
    """Tasks of 100 ms, as many at once as one worker has threads."""
    graph = Graph(["work"] * tasks, [[]] * tasks, [100 * MS] * tasks, [1] * tasks, set(range(tasks)))
    return simulate(graph, workers=1, nthreads=nthreads, cpu_share=cpu_share)


def with_turns(trace: RunTrace, seconds: float) -> RunTrace:
    """A heartbeat every 50 ms with the seconds between two turns of the worker's loop."""
    at = np.arange(trace.start, trace.stop, 50 * MS)
    columns = {"at": at, "worker": np.zeros(len(at), np.int32), "loop_interval": np.full(len(at), seconds)}
    return replace(trace, series=Series.from_columns(columns))


@pytest.mark.parametrize(
    ("cpu_share", "alone", "held", "crowd", "note"),
    [
        # The other thread holds the lock, too; tasks without a prefix: none.
        (0.5, 50, 1.0, [1.0, 0.0], "at most one core together"),
        (1.0, 100, 0.0, [0.0, 0.0], "more than one core together"),
        (0.1, 100, 0.1, [0.1, 0.0], "at most one core together"),
    ],
    ids=["they waited for the lock", "they did not hold it", "they waited for something else"],
)
def test_the_cores_that_threads_used_together_tell_whether_they_hold_the_lock(
    cpu_share: float, alone: int, held: float, crowd: list[float], note: str
) -> None:
    found = read_gil(recorded(cpu_share))
    np.testing.assert_allclose(found.alone, alone * MS, rtol=0.02)
    np.testing.assert_allclose(found.held, held, rtol=0.02)
    np.testing.assert_allclose(found.crowd, crowd, rtol=0.05)
    assert note in found.notes[0]


@pytest.mark.parametrize(
    ("gil_waits", "held", "alone"),
    [
        # Two threads that always hold the lock have it half of the time each; and one that is seen to wait for nothing.
        (1.0, 1.0, 50),
        (0.0, 0.0, 100),
        # 100 ms, of which 20 are waits for the lock: h (1 + h) = 0.25 (1.25 + h) / 1.25 for its share of the 80 ms.
        (0.4, 0.4479, 80),
    ],
    ids=["pure Python", "something else", "some of both"],
)
def test_sampled_waits_tell_for_which_share_of_their_time_tasks_hold_the_lock(
    gil_waits: float, held: float, alone: int
) -> None:
    trace = replace(recorded(0.5), gil_waits={"work": gil_waits})
    found = read_gil(trace)
    np.testing.assert_allclose(found.held, held, rtol=0.03)
    np.testing.assert_allclose(found.alone, alone * MS, rtol=0.02)
    assert "sampled waits" in found.notes[0]


def test_waits_for_a_lock_whose_holder_waits_for_a_core_are_no_longer_than_without() -> None:
    trace = replace(recorded(0.25), gil_waits={"work": 1 / 3})
    # 25 ms of CPU, 50 of waits for cores and 25 for the lock, which would be 8 with enough cores.
    few = read_gil(trace, for_cores=np.full(len(trace.runs), 50.0 * MS))
    enough = read_gil(trace)
    assert few.held.max() > enough.held.max()
    np.testing.assert_allclose(few.alone, 75 * MS, rtol=0.02)


def test_sampled_waits_for_cores_are_taken_unless_others_had_some() -> None:
    trace = replace(recorded_use(3, 0.6), core_waits={"work": 0.5})
    np.testing.assert_allclose(core_waits(trace, {"here": 2.0}), 20 * MS, rtol=0.02)
    crowd = tuple(replace(worker, cores=2.0, others=0.6) for worker in trace.workers)
    assert np.median(core_waits(replace(trace, workers=crowd), {"here": 2.0})) > 30 * MS


def test_turns_of_the_loop_tell_of_threads_that_ran_alone_and_without_them_it_is_assumed() -> None:
    trace = recorded(1.0, nthreads=1)
    assert read_gil(with_turns(trace, 0.0201)).held.max() == 0.0
    for one, why in ((with_turns(trace, 0.025), "turned later"), (trace, "nothing in the trace shows")):
        found = read_gil(one)
        np.testing.assert_allclose(found.held, 1.0, rtol=0.01)
        assert why in found.notes[0]


def test_the_given_share_of_a_prefix_is_used_but_not_for_tasks_that_were_dropped() -> None:
    found = read_gil(recorded(0.0), {"work": 1.0})
    np.testing.assert_allclose(found.alone, 50 * MS, rtol=0.1)
    np.testing.assert_array_equal(found.held, 1.0)
    assert not found.notes
    trace = recorded(0.5)
    runs = trace.runs.columns() | {"task": np.full(len(trace.runs), MISSING, np.int32)}
    found = read_gil(replace(trace, runs=Runs.from_columns(runs)), {"work": 0.0})
    np.testing.assert_allclose(found.held, 1.0, rtol=0.02)


def test_a_share_outside_0_to_1_or_of_an_unknown_prefix_is_refused_by_name() -> None:
    for share in (1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"gil\['work'\] is .*expected"):
            check_shares(recorded(0.5), {"work": share})
    with pytest.raises(UnknownNameError, match="'wrok'"):
        check_shares(recorded(0.5), {"wrok": 0.5})


def recorded_use(workers: int, cpu_share: float, nthreads: int = 1, cores: float = 0.0) -> RunTrace:
    """Tasks of 100 ms that all threads of some workers have at all times, on one host."""
    count = 8 * workers * nthreads
    graph = Graph(["work"] * count, [[]] * count, [100 * MS] * count, [1] * count, set(range(count)))
    trace = simulate(graph, workers=workers, nthreads=nthreads, cpu_share=cpu_share)
    return replace(trace, workers=tuple(replace(worker, host="here", cores=cores) for worker in trace.workers))


@pytest.mark.parametrize(
    ("workers", "cpu_share", "cores", "least", "most"),
    [
        # Three threads had 0.6 of a core each, and processes worked in the background: as good as two cores.
        (3, 0.6, {"here": 2.0}, 32, 48),
        # Cores were free, so that threads waited for something else.
        (1, 0.6, {"here": 2.0}, 0, 0),
        (3, 0.6, {"here": 4.0}, 0, 0),
        (3, 0.0, {"here": 2.0}, 0, 0),
        # No cores are known.
        (3, 0.6, {}, 0, 0),
        (3, 0.6, {"elsewhere": 1.0}, 0, 0),
        # One thread that only waits for the background, on one core.
        (1, 0.8, {"here": 1.0}, 1e-6, 80 * 2 * BACKGROUND / (1 - 2 * BACKGROUND) + 5),
    ],
)
def test_threads_that_used_all_cores_together_waited_for_them(
    workers: int, cpu_share: float, cores: dict[str, float], least: float, most: float
) -> None:
    assert least <= np.median(core_waits(recorded_use(workers, cpu_share), cores)) / MS <= most


@pytest.mark.parametrize(("recorded_cores", "took"), [(0.0, 60), (8.0, 100)], ids=["given cores", "recorded cores win"])
def test_waiting_for_cores_is_no_part_of_the_tasks_time(recorded_cores: float, took: int) -> None:
    compute = calibrate(recorded_use(3, 0.6, cores=recorded_cores), cores={"here": 2.0}).compute
    assert np.median(compute) == pytest.approx(took * MS, abs=8 * MS)


@pytest.mark.parametrize(("workers", "nthreads", "few"), [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_cores_are_few_if_threads_and_the_scheduler_are_more(workers: int, nthreads: int, few: bool) -> None:
    trace = recorded_use(workers, 0.5, nthreads)
    assert few_cores(trace, {"here": 2.0}) is few
    assert not few_cores(trace, {})


@settings(max_examples=30)
@given(damaged_traces())
def test_waits_of_damaged_traces_are_finite(trace: RunTrace) -> None:
    found = core_waits(trace, {worker.host: 1.0 for worker in trace.workers})
    assert np.isfinite(found).all()
    assert (found >= 0).all()


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
        quiet = figures_of()
        trace = replace(quiet, workers=tuple(replace(one, cores=2.0, others=others) for one in quiet.workers))
        job = SimulationJob(ClusterSpec.from_trace(trace))
        return predicted(trace, job).model_error

    assert error(0.05) == error(0.0) < error(0.5) < error(0.8)
    assert error(1.0) == inf


def test_the_runs_own_job_has_the_others_and_a_prediction_has_not() -> None:
    assert own_job(crowded()).others
    assert not own_job(crowded(others=0.05)).others
    assert not own_job(figures_of()).others
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
