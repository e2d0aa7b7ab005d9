from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.runs.trace.schema import Runs, Series
from dask_efficiency.simulation.model.calibration import calibrate
from dask_efficiency.simulation.model.cores import BACKGROUND
from dask_efficiency.simulation.model.thread_waits import check_shares, core_waits, few_cores, read_gil
from tests.runs.trace.samples import damaged_traces


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


def test_turns_of_the_loop_tell_of_threads_that_ran_alone_and_without_them_it_is_assumed() -> None:
    trace = recorded(1.0, nthreads=1)
    assert read_gil(with_turns(trace, 0.0201)).held.max() == 0.0
    for one, why in ((with_turns(trace, 0.025), "turned later"), (trace, "nothing in the trace shows")):
        found = read_gil(one)
        np.testing.assert_allclose(found.held, 1.0, rtol=0.01)
        assert why in found.notes[0]


def test_runs_of_tasks_that_were_dropped_have_no_prefix() -> None:
    trace = recorded(0.5)
    runs = trace.runs.columns() | {"task": np.full(len(trace.runs), MISSING, np.int32)}
    found = read_gil(replace(trace, runs=Runs.from_columns(runs)), {"work": 0.0})
    np.testing.assert_allclose(found.held, 1.0, rtol=0.02)


def test_the_given_share_of_a_prefix_is_used() -> None:
    found = read_gil(recorded(0.0), {"work": 1.0})
    np.testing.assert_allclose(found.alone, 50 * MS, rtol=0.1)
    np.testing.assert_array_equal(found.held, 1.0)
    assert not found.notes


@pytest.mark.parametrize("share", [1.5, -0.1, float("nan")])
def test_a_share_outside_0_to_1_or_of_an_unknown_prefix_is_refused_by_name(share: float) -> None:
    with pytest.raises(ValueError, match=r"gil\['work'\] is .*expected"):
        check_shares(recorded(0.5), {"work": share})
    with pytest.raises(UnknownNameError, match="'wrok'"):
        check_shares(recorded(0.5), {"wrok": 0.5})


def recorded_use(workers: int, cpu_share: float, nthreads: int = 1) -> RunTrace:
    """Tasks of 100 ms that all threads of some workers have at all times, on one host."""
    count = 8 * workers * nthreads
    graph = Graph(["work"] * count, [[]] * count, [100 * MS] * count, [1] * count, set(range(count)))
    trace = simulate(graph, workers=workers, nthreads=nthreads, cpu_share=cpu_share)
    return replace(trace, workers=tuple(replace(worker, host="here") for worker in trace.workers))


def waits(trace: RunTrace, cores: float) -> float:
    """Milliseconds in the middle."""
    return float(np.median(core_waits(trace, {"here": cores}))) / MS


def test_threads_that_together_used_all_cores_waited_for_them() -> None:
    # Three threads had 0.6 of a core each, and processes something to do in the background: as good as two cores.
    assert waits(recorded_use(3, 0.6), 2.0) == pytest.approx(40, abs=8)
    # That is then no part of what the tasks take.
    trace = recorded_use(3, 0.6)
    compute = calibrate(trace, cores={"here": 2.0}).compute
    assert np.median(compute) == pytest.approx(60 * MS, abs=8 * MS)


def test_threads_that_left_cores_free_waited_for_something_else() -> None:
    assert waits(recorded_use(1, 0.6), 2.0) == 0
    assert waits(recorded_use(3, 0.6), 4.0) == 0
    assert waits(recorded_use(3, 0.0), 2.0) == 0


def test_without_known_cores_nothing_waits() -> None:
    trace = recorded_use(3, 0.6)
    assert not core_waits(trace, {}).any()
    assert not core_waits(trace, {"elsewhere": 1.0}).any()


def test_the_cores_of_the_trace_win_over_given_ones() -> None:
    trace = recorded_use(3, 0.6)
    said = replace(trace, workers=tuple(replace(worker, cores=8.0) for worker in trace.workers))
    told = calibrate(said, cores={"here": 2.0})
    assert np.median(told.compute) == pytest.approx(100 * MS, rel=0.02)


@pytest.mark.parametrize(("workers", "nthreads", "few"), [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_cores_are_few_if_threads_and_the_scheduler_are_more(workers: int, nthreads: int, few: bool) -> None:
    trace = recorded_use(workers, 0.5, nthreads)
    assert few_cores(trace, {"here": 2.0}) is few
    assert not few_cores(trace, {})


@settings(max_examples=30)
@given(damaged_traces())
def test_no_trace_breaks_it(trace: RunTrace) -> None:
    found = core_waits(trace, {worker.host: 1.0 for worker in trace.workers})
    assert np.isfinite(found).all()
    assert (found >= 0).all()


def test_the_background_takes_its_part() -> None:
    # One thread that never waits but for the background, on as many cores as leave it none free.
    alone = waits(recorded_use(1, 0.8), 1.0)
    assert 0 < alone <= 80 * 2 * BACKGROUND / (1 - 2 * BACKGROUND) + 5
