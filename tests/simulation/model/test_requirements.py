from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import RunTrace
from dask_efficiency.runs.replay.replay import replay
from dask_efficiency.runs.trace.schema import Runs, Tasks
from dask_efficiency.simulation.model.accuracy import SimulationRefusedError
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.requirements import (
    SIMULATED,
    UnplaceableError,
    check_cluster,
    check_trace,
    data_before,
    left_out,
)
from tests.simulation.fake_engine import recorded

MB = 1_000_000


def shuffled() -> RunTrace:
    """Two tables of 10 and 30 MB in a shuffle with three outputs."""
    prefixes = ["load"] * 2 + ["shuffle-transfer"] * 2 + ["shuffle-barrier"] + ["shuffle-p2p"] * 3
    inputs = [[], [], [0], [1], [2, 3], [4], [4], [4]]
    graph = Graph(prefixes, inputs, [10 * MS] * 8, [10 * MB, 30 * MB, 1, 1, 1, MB, MB, MB], {5, 6, 7})
    return simulate(graph, workers=2, nthreads=1)


def test_a_run_that_is_simulated_as_it_was_has_no_note() -> None:
    assert not left_out(simulate(Graph(["a", "b"], [[], [0]], [MS, MS], [1, 1], {1}), workers=1))


def test_parts_that_are_left_out_are_noted() -> None:
    trace = shuffled()
    tasks = trace.tasks.columns()
    tasks["graph"] = np.where(np.arange(8) == 0, -1, tasks["graph"])
    runs = trace.runs.take(trace.runs.task != 0).columns()
    runs["gpu_ns"] = np.full(len(runs["task"]), MS)
    trace = replace(
        trace,
        tasks=Tasks.from_columns(tasks),
        runs=Runs.from_columns(runs),
        constraints={1: {"actor": True}},
        clients=("Client-worker-1",),
    )
    assert data_before(trace) == [0]
    said = " ".join(left_out(trace))
    for what in ("P2P shuffles", "1 actors", "Tasks submitted tasks", "1 results that were there", "a GPU of its own"):
        assert what in said


def constrained(**constraints: Any) -> RunTrace:
    return replace(recorded(), constraints={3: constraints})


@pytest.mark.parametrize(
    "constraints",
    [
        {"restrictions": ["tcp://10.0.0.1:4000"]},
        {"restrictions": ["w1", "nobody"]},
        {"restrictions": ["10.0.0.0"]},
        {"restrictions": ["nobody"], "loose_restrictions": True},
        {"resources": {"GPU": 1.0}},
        {"retries": 3},
    ],
)
def test_a_task_may_run_where_its_worker_host_or_resource_is(constraints: dict[str, Any]) -> None:
    trace = constrained(**constraints)
    with_gpu = tuple(replace(worker, resources={"GPU": 1.0}) for worker in trace.workers)
    check_cluster(trace, ClusterSpec(with_gpu))


def test_a_task_that_no_worker_may_run_is_named_with_what_it_needs() -> None:
    trace = constrained(restrictions=["tcp://10.0.0.3:4000"], loose_restrictions=False)
    cluster = ClusterSpec.from_trace(trace)
    check_cluster(trace, cluster)
    with pytest.raises(UnplaceableError, match=r"'load-3' may only run on 'tcp://10.0.0.3:4000'.*'w0', 'w1', 'w2'"):
        check_cluster(trace, cluster.without_workers("w3"))


def test_inputs_that_fit_into_no_worker_are_named() -> None:
    trace = recorded()
    starts, nbytes = trace.dependency_starts, trace.tasks.nbytes
    inputs = [int(nbytes[trace.dependencies[i:j]].sum()) for i, j in pairwise(starts)]
    largest = max(inputs)

    def limited(limit: int) -> ClusterSpec:
        workers = ClusterSpec.from_trace(trace).workers
        return ClusterSpec(tuple(replace(worker, memory_limit=limit) for worker in workers))

    for enough in (largest, 0):
        check_cluster(trace, limited(enough))
    with pytest.raises(UnplaceableError, match="needs inputs of .* no worker has a memory limit above") as refused:
        check_cluster(trace, limited(largest - 1))
    assert trace.keys[inputs.index(largest)] in str(refused.value)


def test_a_resource_that_nobody_has_enough_of_is_named() -> None:
    trace = constrained(resources={"GPU": 2.0})
    cluster = ClusterSpec(tuple(replace(worker, resources={"GPU": 1.0}) for worker in trace.workers))
    with pytest.raises(UnplaceableError, match=r"task 'load-3' needs 2 of 'GPU'.* with the resources GPU 1"):
        check_cluster(trace, cluster)
    with pytest.raises(UnplaceableError, match="without any resources"):
        check_cluster(trace, ClusterSpec.from_trace(trace))


def test_restrictions_and_resources_must_be_those_of_one_worker() -> None:
    trace = constrained(restrictions=["w1"], resources={"GPU": 1.0})
    cluster = ClusterSpec((replace(trace.workers[0], resources={"GPU": 1.0}), *trace.workers[1:]))
    with pytest.raises(UnplaceableError, match="may only run on 'w1' and needs 1 of 'GPU'"):
        check_cluster(trace, cluster)


def test_a_whole_trace_of_the_same_version_needs_no_note() -> None:
    trace = replace(recorded(), versions={"distributed": "2026.8.0"})
    assert check_trace(trace, "2026.8.0", force=False) == ()
    (note,) = check_trace(trace, "2026.9.0", force=False)
    assert "distributed 2026.8.0, simulated with 2026.9.0" in note


@pytest.mark.parametrize("table", ["tasks", "runs", "graphs"])
def test_a_trace_in_which_work_is_missing_is_refused_unless_somebody_insists(table: str) -> None:
    trace = replace(recorded(), dropped={table: 7, "transitions": 3})
    with pytest.raises(SimulationRefusedError, match=f"7 {table} of the trace 'recorded' were dropped"):
        check_trace(trace, "", force=False)
    assert check_trace(trace, "", force=True) == (
        f"Not recorded, and so not simulated either: 7 {table}, 3 transitions.",
    )


def test_other_rows_that_are_missing_are_noted() -> None:
    assert check_trace(replace(recorded(), dropped={"transitions": 3, "runs": 0}), "", force=False) == (
        "Not recorded, and so not simulated either: 3 transitions.",
    )


def test_an_address_follows_the_worker_of_that_name() -> None:
    trace = constrained(restrictions=["tcp://10.0.0.1:4000"])
    moved = tuple(replace(w, address=f"tcp://new:{i}", host="new") for i, w in enumerate(trace.workers))
    check_cluster(trace, ClusterSpec(moved))
    with pytest.raises(UnplaceableError):
        check_cluster(trace, ClusterSpec(moved).without_workers("w1"))


def test_the_notes_of_the_trace_and_what_is_left_out_come_along() -> None:
    trace = replace(recorded(), notes=("clocks differ",), constraints={0: {"actor": True}})
    notes = check_trace(trace, "", force=False)
    assert notes[0] == "clocks differ"
    assert "1 actors are simulated as tasks" in notes[1]


def test_what_is_a_replay_or_a_simulation_is_noted() -> None:
    (note,) = check_trace(replay(recorded()), "", force=False)
    assert "is a replay" in note
    (note,) = check_trace(replace(recorded(), notes=(SIMULATED,)), "", force=False)
    assert "is a simulation itself" in note
