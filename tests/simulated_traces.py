"""Graphs, and traces of simulated clusters that compute them, for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING, Texts
from dask_efficiency.runs.trace.schema import (
    Graphs,
    Phases,
    Runs,
    Transfers,
    Transitions,
)
from tests.simulated_cluster import MS, US, Graph, simulate

# Graphs


def random_graph(tasks: int, *, most_inputs: int = 3, compute_ns: int = 5 * MS, seed: int = 0) -> Graph:
    """Any graph without cycles; the last task is wanted, and what no other task needs."""
    rng = np.random.default_rng(seed)
    inputs = [
        sorted({int(i) for i in rng.integers(max(0, task - 12), task, rng.integers(0, most_inputs + 1))})
        if task
        else []
        for task in range(tasks)
    ]
    used = {i for needed in inputs for i in needed}
    return Graph(
        prefixes=[f"kind{i}" for i in rng.integers(0, 3, tasks)],
        inputs=inputs,
        compute_ns=rng.integers(0, 2 * compute_ns + 1, tasks).tolist(),
        nbytes=rng.integers(1, 1_000_000, tasks).tolist(),
        wanted={i for i in range(tasks) if i not in used},
    )


def tree_graph(leaves: int, *, compute_ns: int = 20 * MS, nbytes: int = 100_000, seed: int = 0) -> Graph:
    """``load`` tasks whose results are summed up two by two."""
    inputs: list[list[int]] = [[] for _ in range(leaves)]
    level = list(range(leaves))
    while len(level) > 1:
        above = []
        for i in range(0, len(level), 2):
            above.append(len(inputs))
            inputs.append(level[i : i + 2])
        level = above
    times = np.random.default_rng(seed).uniform(0.5, 1.5, len(inputs)) * compute_ns
    return Graph(
        prefixes=["load"] * leaves + ["sum"] * (len(inputs) - leaves),
        inputs=inputs,
        compute_ns=times.astype(int).tolist(),
        nbytes=[nbytes] * len(inputs),
        wanted={len(inputs) - 1},
    )


def wide_graph(tasks: int, *, compute_ns: int = 20 * MS, nbytes: int = 1000, seed: int = 0) -> Graph:
    """Many tasks without inputs, and one that needs a hundredth of them each time, and one that needs those."""
    groups = max(tasks // 100, 1)
    inputs: list[list[int]] = [[] for _ in range(tasks)]
    inputs += [list(range(i, tasks, groups)) for i in range(groups)]
    inputs.append(list(range(tasks, tasks + groups)))
    times = np.random.default_rng(seed).uniform(0.5, 1.5, len(inputs)) * compute_ns
    return Graph(
        prefixes=["work"] * tasks + ["merge"] * groups + ["total"],
        inputs=inputs,
        compute_ns=times.astype(int).tolist(),
        nbytes=[nbytes] * len(inputs),
        wanted={len(inputs) - 1},
    )


# Traces


def tree(leaves: int = 64, *, seed: int = 0, **settings: Any) -> RunTrace:
    return simulate(tree_graph(leaves, seed=seed), seed=seed, **settings)


def wide(tasks: int = 200, *, seed: int = 0, **settings: Any) -> RunTrace:
    """More tasks than slots; most wait in the scheduler's queue."""
    return simulate(wide_graph(tasks, seed=seed), seed=seed, **settings)


def transfer_bound(leaves: int = 16, *, seed: int = 0, **settings: Any) -> RunTrace:
    """Results of 32 MB over slow links."""
    graph = tree_graph(leaves, compute_ns=10 * MS, nbytes=32_000_000, seed=seed)
    return simulate(graph, seed=seed, **({"spread": True, "bytes_per_second": 200e6} | settings))


def tiny(tasks: int = 1000, *, seed: int = 0, **settings: Any) -> RunTrace:
    """Tasks that take less time than it takes to schedule them."""
    return simulate(wide_graph(tasks, compute_ns=50 * US, seed=seed), seed=seed, **settings)


def retried(*, seed: int = 0) -> RunTrace:
    """A reduction in which three tasks fail once."""
    return tree(32, seed=seed, failing=frozenset({3, 40, 62}))


def lost_worker(*, seed: int = 0) -> RunTrace:
    """A worker is killed; what it ran, and results that were only there, are done again."""
    return wide(60, seed=seed, dies=(1, 110 * MS))


def seceded(*, seed: int = 0) -> RunTrace:
    """Tasks that leave their slots at half their time."""
    return wide(60, seed=seed, seceding=frozenset(range(0, 60, 5)))


def spilling(*, seed: int = 0) -> RunTrace:
    """Results are written to disk and read back."""
    return tree(32, seed=seed, spill=4 * MS, unspill=6 * MS)


def two_computations(*, seed: int = 0) -> RunTrace:
    """A client that waits for one result before it asks for the next."""
    return simulate([tree_graph(16, seed=seed), wide_graph(40, seed=seed + 1)], seed=seed)


#: Names to functions of a seed.
SAMPLES: dict[str, Callable[..., RunTrace]] = {
    "tree": tree,
    "wide": wide,
    "transfer-bound": transfer_bound,
    "tiny": tiny,
    "retried": retried,
    "lost-worker": lost_worker,
    "seceded": seceded,
    "spilling": spilling,
    "two-computations": two_computations,
}


def large(tasks: int, *, seed: int = 0) -> RunTrace:
    """About that many tasks on 100 threads: a client that computes one reduction after the other.

    Only the first one is simulated. The others are the same at other speeds, so a million tasks take a few seconds.
    """
    times = max(tasks // 50_000, 1)
    leaves = tasks // times // 2
    one = tree(leaves, seed=seed, workers=25, nthreads=4, scheduler_message=4 * US, scheduler_task=US)
    return repeated(one, times, seed=seed)


def repeated(trace: RunTrace, times: int, *, seed: int = 0) -> RunTrace:
    """A computation repeated, each time at another speed and in tasks of other names."""
    scales = np.random.default_rng(seed).uniform(0.8, 1.2, times)
    scales[:1] = 1.0
    offsets = [trace.start]
    for scale in scales:
        offsets.append(offsets[-1] + int((trace.stop - trace.start) * scale) + 5 * MS)
    tasks = len(trace.tasks)
    #: How much the positions in a column grow by with each repetition.
    shifts = {
        "task": tasks,
        "after": tasks,
        "graph": len(trace.graphs),
        "stimulus": len(trace.stimuli),
        "run_id": len(trace.runs),
    }
    instants = {name for table in (Runs, Graphs, Transitions, Transfers, Phases) for name in table.dtypes()}
    instants -= {"run_id", "thread", "nbytes"}

    def again(table: Any) -> Any:
        columns = {}
        for name, column in table.columns().items():
            parts = []
            for i, (scale, offset) in enumerate(zip(scales, offsets, strict=False)):
                moved = column.copy()
                known = column != MISSING
                if name.endswith("_ns"):
                    moved = (column * scale).astype(np.int64)
                elif name in instants and column.dtype == np.int64:
                    moved[known] = offset + ((column[known] - trace.start) * scale).astype(np.int64)
                elif name in shifts:
                    moved[known] += i * shifts[name]
                parts.append(moved)
            columns[name] = np.concatenate(parts)
        return type(table)(**columns)

    names = list(trace.keys)
    edges = len(trace.dependencies)
    ends = [trace.dependency_starts[1:] + i * edges for i in range(times)]
    return replace(
        trace,
        stop=offsets[-1],
        keys=Texts.of(f"{name}-{i}" for i in range(times) for name in names),
        dependency_starts=np.concatenate([trace.dependency_starts[:1], *ends]),
        dependencies=np.concatenate([trace.dependencies + i * tasks for i in range(times)]).astype(np.int32),
        tasks=again(trace.tasks),
        graphs=again(trace.graphs),
        runs=again(trace.runs),
        stimuli=again(trace.stimuli),
        transitions=again(trace.transitions),
        transfers=again(trace.transfers),
        phases=again(trace.phases),
    )
