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
