from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated_traces import SAMPLES, seceded, tree
from dask_efficiency import critical_path
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.schema import Runs, WorkerChange, WorkerEvents
from dask_efficiency.simulation.model.run_figures import (
    MAX_NOISE,
    NOISE_PER_SECOND,
    RunFigures,
    busy,
    computing_share,
    efficiency,
    makespan_seconds,
    run_noise,
)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_makespan_is_that_of_the_critical_path(name: str) -> None:
    trace = SAMPLES[name]()
    assert makespan_seconds(trace) == critical_path(trace).makespan_seconds


def test_shares_are_of_slots_times_makespan() -> None:
    trace = tree()
    whole = 8 * makespan_seconds(trace)
    assert efficiency(trace) == pytest.approx(trace.runs.cpu_ns.sum() / 1e9 / whole, rel=1e-3)
    assert busy(trace) == pytest.approx((trace.runs.stop - trace.runs.start).sum() / 1e9 / whole, rel=1e-3)


def test_the_threads_of_a_worker_count_for_as_long_as_it_is_there() -> None:
    trace = tree()
    half = (trace.start + trace.stop) // 2
    joins = {"at": [half], "worker": [0], "change": [WorkerChange.JOINED]}
    late = replace(trace, worker_events=WorkerEvents.from_columns({k: np.array(v) for k, v in joins.items()}))
    # One of four workers is there for half of the time.
    assert busy(late) == pytest.approx(busy(trace) / (7 / 8), rel=0.05)
    assert efficiency(late) == pytest.approx(efficiency(trace) / (7 / 8), rel=0.05)


def test_a_task_that_has_left_its_slot_holds_no_thread() -> None:
    trace = seceded()
    held = np.where(trace.runs.seceded >= 0, trace.runs.seceded, trace.runs.stop) - trace.runs.start
    assert busy(trace) == pytest.approx(held.sum() / 1e9 / 8 / makespan_seconds(trace), rel=1e-3)


def test_the_figures_of_a_run_are_those_of_its_slots() -> None:
    trace = tree()
    found = RunFigures.of(trace)
    assert (found.workers, found.nthreads, found.name) == (4, 8, "simulated")
    assert found.efficiency == pytest.approx(efficiency(trace), rel=1e-3)
    assert sum(found.kinds.values()) == pytest.approx(found.makespan_seconds)


def test_a_trace_without_tasks_is_refused() -> None:
    with pytest.raises(EmptyTraceError):
        makespan_seconds(replace(tree(4), runs=Runs.empty()))


@pytest.mark.parametrize(
    ("kinds", "seconds", "noise"),
    [
        ({"compute-cpu": 4.0}, 4.0, NOISE_PER_SECOND / 2),
        ({"compute-cpu": 100.0}, 100.0, NOISE_PER_SECOND / 10),
        ({"compute-cpu": 0.01}, 0.01, MAX_NOISE),
        ({"compute-noncpu": 3.0, "transfer": 1.0}, 4.0, 0.0),
        ({"compute-cpu": 1.0, "compute-noncpu": 3.0}, 4.0, NOISE_PER_SECOND / 4),
        ({}, 0.0, 0.0),
    ],
)
def test_only_what_computes_differs_and_by_less_of_its_time_the_longer_it_computes(
    kinds: dict[str, float], seconds: float, noise: float
) -> None:
    assert run_noise(kinds, seconds) == pytest.approx(noise)


def test_the_share_that_computes_is_of_the_whole_path() -> None:
    assert computing_share({"compute-cpu": 1.0, "spill": 3.0}, 4.0) == 0.25
    assert computing_share({}, 4.0) == computing_share({}, 0.0) == 0.0
