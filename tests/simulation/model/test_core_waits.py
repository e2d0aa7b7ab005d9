from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import RunTrace
from dask_efficiency.simulation.model.calibration import calibrate
from dask_efficiency.simulation.model.core_waits import core_waits, few_cores
from dask_efficiency.simulation.model.cores import BACKGROUND
from tests.runs.trace.samples import damaged_traces


def recorded(workers: int, cpu_share: float, nthreads: int = 1) -> RunTrace:
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
    assert waits(recorded(3, 0.6), 2.0) == pytest.approx(40, abs=8)
    # That is then no part of what the tasks take.
    trace = recorded(3, 0.6)
    compute = calibrate(trace, cores={"here": 2.0}).compute
    assert np.median(compute) == pytest.approx(60 * MS, abs=8 * MS)


def test_threads_that_left_cores_free_waited_for_something_else() -> None:
    assert waits(recorded(1, 0.6), 2.0) == 0
    assert waits(recorded(3, 0.6), 4.0) == 0
    assert waits(recorded(3, 0.0), 2.0) == 0


def test_where_cores_are_not_known_nothing_waits() -> None:
    trace = recorded(3, 0.6)
    assert not core_waits(trace, {}).any()
    assert not core_waits(trace, {"elsewhere": 1.0}).any()


def test_what_the_trace_says_of_cores_is_believed_before_what_it_is_told() -> None:
    trace = recorded(3, 0.6)
    said = replace(trace, workers=tuple(replace(worker, cores=8.0) for worker in trace.workers))
    told = calibrate(said, cores={"here": 2.0})
    assert np.median(told.compute) == pytest.approx(100 * MS, rel=0.02)


@pytest.mark.parametrize(("workers", "nthreads", "few"), [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_cores_are_few_where_threads_and_the_scheduler_are_more(workers: int, nthreads: int, few: bool) -> None:
    trace = recorded(workers, 0.5, nthreads)
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
    alone = waits(recorded(1, 0.8), 1.0)
    assert 0 < alone <= 80 * 2 * BACKGROUND / (1 - 2 * BACKGROUND) + 5
