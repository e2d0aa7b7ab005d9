from dataclasses import replace

import numpy as np
import pytest

from dask_efficiency import critical_path
from dask_efficiency.runs.trace.schema import WorkerChange, WorkerEvents
from dask_efficiency.simulation.model.run_figures import (
    MAX_NOISE,
    NOISE_PER_SECOND,
    RunFigures,
    computing_share,
    makespan_seconds,
    run_noise,
)
from tests.simulated_traces import SAMPLES, seceded, tree


@pytest.mark.parametrize("name", SAMPLES)
def test_the_makespan_is_that_of_the_critical_path(name: str) -> None:
    trace = SAMPLES[name]()
    assert makespan_seconds(trace) == critical_path(trace).makespan_seconds


def test_shares_are_of_slots_times_makespan() -> None:
    trace, found = tree(), RunFigures.of(tree())
    assert (found.workers, found.nthreads, found.name) == (4, 8, "simulated")
    whole = 8 * found.makespan_seconds
    assert found.efficiency == pytest.approx(trace.runs.cpu_ns.sum() / 1e9 / whole, rel=1e-3)
    assert found.busy == pytest.approx((trace.runs.stop - trace.runs.start).sum() / 1e9 / whole, rel=1e-3)
    assert sum(found.kinds.values()) == pytest.approx(found.makespan_seconds)


def test_a_worker_counts_while_it_is_there_and_a_task_until_it_leaves_its_slot() -> None:
    trace = tree()
    joins = {"at": [(trace.start + trace.stop) // 2], "worker": [0], "change": [WorkerChange.JOINED]}
    late = replace(trace, worker_events=WorkerEvents.from_columns({k: np.array(v) for k, v in joins.items()}))
    # One of four workers is there for half of the time.
    found, whole = RunFigures.of(late), RunFigures.of(trace)
    assert found.busy == pytest.approx(whole.busy / (7 / 8), rel=0.05)
    assert found.efficiency == pytest.approx(whole.efficiency / (7 / 8), rel=0.05)
    trace = seceded()
    held = np.where(trace.runs.seceded >= 0, trace.runs.seceded, trace.runs.stop) - trace.runs.start
    assert RunFigures.of(trace).busy == pytest.approx(held.sum() / 1e9 / 8 / makespan_seconds(trace), rel=1e-3)


@pytest.mark.parametrize(
    ("kinds", "seconds", "noise", "computing"),
    [
        ({"compute-cpu": 4.0}, 4.0, NOISE_PER_SECOND / 2, 1.0),
        ({"compute-cpu": 100.0}, 100.0, NOISE_PER_SECOND / 10, 1.0),
        ({"compute-cpu": 0.01}, 0.01, MAX_NOISE, 1.0),
        ({"compute-noncpu": 3.0, "transfer": 1.0}, 4.0, 0.0, 0.0),
        ({"compute-cpu": 1.0, "compute-noncpu": 3.0}, 4.0, NOISE_PER_SECOND / 4, 0.25),
        ({}, 0.0, 0.0, 0.0),
    ],
)
def test_only_computing_differs_and_by_a_smaller_share_the_longer_it_takes(
    kinds: dict[str, float], seconds: float, noise: float, computing: float
) -> None:
    assert run_noise(kinds, seconds) == pytest.approx(noise)
    assert computing_share(kinds, seconds) == computing
