from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import Texts
from dask_efficiency.runs.trace.schema import Runs, Tasks
from dask_efficiency.simulation.model.left_out import data_before, left_out
from dask_efficiency.simulation.model.p2p import shuffles

MB = 1_000_000


def shuffled() -> RunTrace:
    """Two tables of 10 and 30 MB in a shuffle with three outputs; their keys are not in the order of partitions."""
    prefixes = ["load"] * 2 + ["shuffle-transfer"] * 2 + ["shuffle-barrier"] + ["shuffle-p2p"] * 3
    inputs = [[], [], [0], [1], [2, 3], [4], [4], [4]]
    graph = Graph(prefixes, inputs, [10 * MS] * 8, [10 * MB, 30 * MB, 1, 1, 1, MB, MB, MB], {5, 6, 7})
    trace = simulate(graph, workers=2, nthreads=1)
    keys = [f"('{prefix}', {i})" for i, prefix in enumerate(prefixes[:5])] + [
        f"('shuffle-p2p', {i})" for i in (10, 2, 1)
    ]
    return replace(trace, keys=Texts.of(keys))


def test_shuffles_are_found_with_the_bytes_that_go_in_and_the_order_of_what_comes_out() -> None:
    (found,) = shuffles(shuffled())
    assert found.barrier == 4
    assert found.inputs == {2: 10 * MB, 3: 30 * MB}
    assert found.outputs == (7, 6, 5)


def test_nothing_is_said_of_a_run_that_is_simulated_as_it_was() -> None:
    assert not left_out(simulate(Graph(["a", "b"], [[], [0]], [MS, MS], [1, 1], {1}), workers=1))


def test_what_is_left_out_is_said() -> None:
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
