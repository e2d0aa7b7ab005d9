from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency import ClusterSpec, RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.files import check_positions
from dask_efficiency.simulation.engine.launch import simulate_jobs
from dask_efficiency.simulation.model.calibration import calibrate
from dask_efficiency.simulation.model.coarser import coarser
from dask_efficiency.simulation.model.ensemble import SeededJob, SimulationJob, Wanted
from tests.simulated_traces import MS, Graph, random_graph, simulate, tree, wide


def pairs(count: int = 8) -> RunTrace:
    """Partitions that are read, and changed each, and all of them added up."""
    inputs = [[]] * count + [[i] for i in range(count)] + [list(range(count, 2 * count))]
    prefixes = ["read"] * count + ["change"] * count + ["sum"]
    return simulate(Graph(prefixes, inputs, [10 * MS] * len(inputs), [1000] * len(inputs), {2 * count}))


def test_neighbours_are_joined_with_what_they_need() -> None:
    trace = pairs()
    found = coarser(trace, 4)
    now = found.trace
    assert [now.prefixes[prefix] for prefix in now.tasks.prefix] == ["read", "read", "change", "change", "sum"]
    assert now.tasks.nbytes.tolist() == [4000, 4000, 4000, 4000, 1000]
    needs = [
        now.dependencies[a:b].tolist() for a, b in zip(now.dependency_starts, now.dependency_starts[1:], strict=False)
    ]
    # Each of the two needs what was made of its own four.
    assert needs == [[], [], [0], [1], [2, 3]]
    costs = found.calibration(calibrate(trace))
    np.testing.assert_allclose(costs.compute / MS, [40, 40, 40, 40, 10], rtol=0.02)


def test_with_calls_alone_a_task_costs_what_the_longest_of_those_that_it_stands_for_does() -> None:
    trace = pairs()
    before, found = calibrate(trace), coarser(trace, 4)
    costs = found.calibration(before, calls_alone=True)
    longest = [before.compute[found.task == task].max() for task in range(5)]
    assert costs.compute.tolist() == longest
    assert costs.nbytes.tolist() == [1000] * 5


def test_a_small_graph_beside_a_large_one_is_taken_in_sooner_and_one_after_it_is_not() -> None:
    first = pairs(100)
    for after, share in ((False, 101 / 201), (True, 1.0)):
        ends = int(first.runs.stop.max())
        at = ends if after else int(first.graphs.received[0]) + MS
        graphs = type(first.graphs).from_columns(
            {
                name: np.append(column, {"received": at, "taken_in": at + 10 * MS}.get(name, column[0]))
                for name, column in first.graphs.columns().items()
            }
        )
        tasks, last = first.tasks.columns(), len(first.tasks) - 1
        graph = np.where(np.arange(last + 1) == last, 1, tasks["graph"])
        found = coarser(
            replace(first, graphs=graphs, tasks=type(first.tasks).from_columns(tasks | {"graph": graph})), 2
        ).trace.graphs
        assert found.taken_in[1] - found.received[1] == pytest.approx(10 * MS * share, rel=0.01)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 99), st.integers(2, 9))
def test_work_and_bytes_stay_and_no_task_needs_itself(seed: int, times: int) -> None:
    trace = simulate(random_graph(60, seed=seed), seed=seed)
    before, found = calibrate(trace), coarser(trace, times)
    check_positions(found.trace)
    costs = found.calibration(before)
    assert abs(costs.compute.sum() - before.compute.sum()) <= len(found.trace.tasks)
    assert costs.nbytes.sum() == before.nbytes.sum()
    assert (costs.cpu * costs.compute).sum() == pytest.approx((before.cpu * before.compute).sum(), rel=1e-3)
    starts, needed = found.trace.dependency_starts, found.trace.dependencies
    assert all(task not in needed[starts[task] : starts[task + 1]] for task in range(len(found.trace.tasks)))
    assert sorted(set(found.task.tolist())) == list(range(len(found.trace.tasks)))


def test_tasks_with_constraints_of_their_own_and_those_that_did_not_succeed_stay() -> None:
    trace = pairs()
    assert len(coarser(replace(trace, constraints={0: {"retries": 2}}), 8).trace.tasks) == 4
    outcome = trace.runs.outcome.copy()
    outcome[trace.runs.task == 1] = 1
    assert len(coarser(replace(trace, runs=replace(trace.runs, outcome=outcome)), 8).trace.tasks) == 4
    seceded = np.where(trace.runs.task == 2, trace.runs.stop, MISSING)
    assert len(coarser(replace(trace, runs=replace(trace.runs, seceded=seceded)), 8).trace.tasks) == 4


@pytest.mark.parametrize("trace", [tree(16), wide(200)], ids=["tree", "wide"])
def test_the_coarser_run_ends(trace: RunTrace) -> None:
    job = SimulationJob(ClusterSpec.from_trace(trace), chunks=4)
    (runs,) = simulate_jobs(trace, [SeededJob(job, [0], Wanted.TRACE)])
    assert runs.trace is not None
    assert len(runs.trace.tasks) == len(coarser(trace, 4).trace.tasks) < len(trace.tasks)
    took = runs.trace.runs.stop - runs.trace.runs.start
    assert took.sum() >= 0.9 * (trace.runs.stop - trace.runs.start).sum()
