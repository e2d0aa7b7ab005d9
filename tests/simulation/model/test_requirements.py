from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dask_efficiency import RunTrace
from dask_efficiency.runs.replay.replay import replay
from dask_efficiency.runs.trace.schema import Runs, Tasks
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.requirements import (
    SIMULATED,
    SimulationRefusedError,
    UnplaceableError,
    check_cluster,
    check_trace,
    data_before,
    left_out,
)
from tests.simulated_traces import MS, Graph, simulate
from tests.simulation.engine.test_shuffles import shuffle
from tests.simulation.fake_engine import recorded


def test_parts_that_are_left_out_are_noted() -> None:
    assert not left_out(simulate(Graph(["a", "b"], [[], [0]], [MS, MS], [1, 1], {1}), workers=1))
    trace = shuffle()
    tasks = trace.tasks.columns()
    tasks["graph"] = np.where(np.arange(8) == 0, -1, tasks["graph"])
    runs = trace.runs.take(trace.runs.task != 0).columns()
    runs["gpu_ns"] = np.full(len(runs["task"]), MS)
    tables: dict[str, Any] = {"tasks": Tasks.from_columns(tasks), "runs": Runs.from_columns(runs)}
    trace = replace(trace, **tables, constraints={1: {"actor": True}}, clients=("Client-worker-1",))
    assert data_before(trace) == [0]
    notes = " ".join(left_out(trace))
    for part in ("P2P shuffles", "1 actors", "Tasks submitted tasks", "1 results that were there", "a GPU of its own"):
        assert part in notes


def constrained(**constraints: Any) -> RunTrace:
    return replace(recorded(), constraints={3: constraints})


def with_gpus(trace: RunTrace, *gpus: float) -> ClusterSpec:
    first = (replace(worker, resources={"GPU": n}) for worker, n in zip(trace.workers, gpus, strict=False))
    return ClusterSpec((*first, *trace.workers[len(gpus) :]))


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
    check_cluster(trace, with_gpus(trace, 1.0, 1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("constraints", "gpus", "without", "wrong"),
    [
        (
            {"restrictions": ["tcp://10.0.0.3:4000"], "loose_restrictions": False},
            [],
            "w3",
            r"'load-3' may only run on 'tcp://10.0.0.3:4000'.*'w0', 'w1', 'w2'",
        ),
        ({"resources": {"GPU": 2.0}}, [1.0] * 4, "", r"task 'load-3' needs 2 of 'GPU'.* with the resources GPU 1"),
        ({"resources": {"GPU": 2.0}}, [], "", "without any resources"),
        # One worker must have both.
        ({"restrictions": ["w1"], "resources": {"GPU": 1.0}}, [1.0], "", "may only run on 'w1' and needs 1 of 'GPU'"),
    ],
)
def test_a_task_that_no_worker_may_run_is_named_with_its_needs(
    constraints: dict[str, Any], gpus: list[float], without: str, wrong: str
) -> None:
    trace = constrained(**constraints)
    cluster = with_gpus(trace, *gpus)
    if without:
        check_cluster(trace, cluster)
        cluster = cluster.without_workers(without)
    with pytest.raises(UnplaceableError, match=wrong):
        check_cluster(trace, cluster)


def test_inputs_that_fit_into_no_worker_are_named() -> None:
    trace = recorded()
    inputs = [int(trace.tasks.nbytes[trace.dependencies[i:j]].sum()) for i, j in pairwise(trace.dependency_starts)]
    largest, cluster = max(inputs), ClusterSpec.from_trace(trace)
    for enough in (largest, 0):
        check_cluster(trace, cluster.with_workers(4, memory_limit=enough))
    with pytest.raises(UnplaceableError, match="needs inputs of .* no worker has a memory limit above") as refused:
        check_cluster(trace, cluster.with_workers(4, memory_limit=largest - 1))
    assert trace.keys[inputs.index(largest)] in str(refused.value)


def test_an_address_follows_the_worker_of_that_name() -> None:
    trace = constrained(restrictions=["tcp://10.0.0.1:4000"])
    moved = tuple(replace(w, address=f"tcp://new:{i}", host="new") for i, w in enumerate(trace.workers))
    check_cluster(trace, ClusterSpec(moved))
    with pytest.raises(UnplaceableError):
        check_cluster(trace, ClusterSpec(moved).without_workers("w1"))


@pytest.mark.parametrize("table", ["tasks", "runs", "graphs"])
def test_a_trace_in_which_work_is_missing_is_refused_without_force(table: str) -> None:
    trace = replace(recorded(), dropped={table: 7, "transitions": 3})
    with pytest.raises(SimulationRefusedError, match=f"7 {table} of the trace 'recorded' were dropped"):
        check_trace(trace, "", force=False)
    (note,) = check_trace(trace, "", force=True)
    assert note == f"Not recorded, and so not simulated either: 7 {table}, 3 transitions."


@pytest.mark.parametrize(
    ("changed", "notes"),
    [
        ({"versions": {"distributed": "2026.9.0"}}, []),
        ({"versions": {"distributed": "2026.8.0"}}, ["distributed 2026.8.0, simulated with 2026.9.0"]),
        ({"dropped": {"transitions": 3, "runs": 0}}, ["Not recorded, and so not simulated either: 3 transitions."]),
        ({"notes": ("clocks differ",), "constraints": {0: {"actor": True}}}, ["clocks differ", "1 actors are"]),
        ({"notes": (SIMULATED,)}, ["is a simulation itself"]),
        ({"notes": replay(recorded()).notes}, ["is a replay"]),
    ],
)
def test_caveats_of_a_trace_are_noted(changed: dict[str, Any], notes: list[str]) -> None:
    found = check_trace(replace(recorded(), **changed), "2026.9.0", force=False)
    assert all(part in note for part, note in zip(notes, found, strict=True))
