"""Graphs whose tasks sleep for fixed times, and programs that compute, for runs that a simulation is judged by.

A graph is the same each time that it is made (keys, durations, sizes), so that two runs of it on different clusters
can be compared task by task.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from dask.delayed import Delayed, delayed
from distributed import Client, get_worker

from dask_efficiency.report import demo

MB = 1_000_000


def nap(seconds: float, nbytes: int, *inputs: Any) -> bytes:
    """Sleep, longer on a worker that was made slow; the result has that many bytes."""
    time.sleep(seconds * getattr(get_worker(), "benchmark_slowness", 1.0))
    return b"x" * nbytes


def set_slowness(dask_worker: Any, factor: float) -> None:
    """How many times as long :func:`nap` takes on a worker."""
    dask_worker.benchmark_slowness = factor


class _Graph:
    """Adds sleeping tasks with durations drawn in the order in which they are added."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)

    def task(self, kind: str, number: int, seconds: float, nbytes: int, *inputs: Delayed) -> Delayed:
        """One more task; it takes 0.5 to 1.5 times as long."""
        return self.exactly(kind, number, seconds * self.rng.uniform(0.5, 1.5), nbytes, *inputs)

    def exactly(self, kind: str, number: int, seconds: float, nbytes: int, *inputs: Delayed) -> Delayed:
        """One more task of that duration; its prefix is the graph's name and its kind."""
        key = f"{self.name}_{kind}-{number}"
        return delayed(nap, pure=False)(float(seconds), nbytes, *inputs, dask_key_name=key)


def tree(leaves: int = 512, seconds: float = 0.04, seed: int = 1) -> Delayed:
    """A reduction two by two."""
    graph = _Graph("tree", seed)
    level = [graph.task("load", i, seconds, 10_000) for i in range(leaves)]
    number = 0
    while len(level) > 1:
        above = []
        for i in range(0, len(level), 2):
            above.append(graph.task("merge", number, seconds, 10_000, *level[i : i + 2]))
            number += 1
        level = above
    return level[0]


def lognormal(tasks: int = 400, seconds: float = 0.05, sigma: float = 1.0, seed: int = 2) -> Delayed:
    """Independent tasks of which a few take far longer than the others, and one that needs them all."""
    graph = _Graph("lognormal", seed)
    times = graph.rng.lognormal(np.log(seconds) - sigma**2 / 2, sigma, tasks)
    level = [graph.exactly("work", i, times[i], 1000) for i in range(tasks)]
    return graph.exactly("total", 0, 0.02, 100, *level)


def shuffle(partitions: int = 24, piece: int = MB // 10, seed: int = 3) -> Delayed:
    """Each partition is split into as many pieces as there are partitions; each new partition needs one of each."""
    graph = _Graph("shuffle", seed)
    loads = [graph.task("load", i, 0.06, piece * partitions) for i in range(partitions)]
    pieces = [
        [graph.task("split", i * partitions + j, 0.025, piece, loads[i]) for j in range(partitions)]
        for i in range(partitions)
    ]
    merged = [graph.task("merge", j, 0.06, 1000, *(row[j] for row in pieces)) for j in range(partitions)]
    return graph.exactly("total", 0, 0.02, 100, *merged)


def stencil(cells: int = 16, steps: int = 20, seconds: float = 0.05, seed: int = 4) -> Delayed:
    """Each cell needs itself and its two neighbours of the step before."""
    graph = _Graph("stencil", seed)
    level = [graph.task("init", i, seconds, 50_000) for i in range(cells)]
    for step in range(1, steps):
        level = [
            graph.task("step", step * cells + i, seconds, 50_000, *level[max(0, i - 1) : i + 2]) for i in range(cells)
        ]
    return graph.exactly("total", 0, 0.02, 100, *level)


def warm_up(workers: int) -> Delayed:
    """A few tasks on each worker, whose results move between them."""
    graph = _Graph("warm", 0)
    level = [graph.task("init", i, 0.05, 10_000) for i in range(2 * workers)]
    for step in range(1, 3):
        level = [
            graph.task("step", step * 1000 + i, 0.02, 10_000, level[i], level[i - workers]) for i in range(2 * workers)
        ]
    return graph.exactly("total", 0, 0.01, 100, *level)


#: Graphs of sleeping tasks by name.
GRAPHS: dict[str, Callable[[], Delayed]] = {
    "tree": tree,
    "lognormal": lognormal,
    "shuffle": shuffle,
    "stencil": stencil,
}


def frame(client: Client, method: str) -> None:
    """A shuffle of a table with 32 partitions to 16."""
    import dask
    import dask.datasets

    table = dask.datasets.timeseries(end="2000-02-02", freq="1s", seed=1)
    with dask.config.set({"dataframe.shuffle.method": method}):
        table.shuffle("name", npartitions=16).map_partitions(len).sum().compute()


def array(client: Client) -> None:
    """Spread around the mean of 800 MB in 64 chunks, of a product with itself turned round."""
    import dask.array as da

    values = da.random.default_rng(1).random((8000, 8000), chunks=(1000, 1000))
    (da.exp(values) * values.T - values.mean()).std().compute()


def torch(client: Client) -> None:
    """The demo's batches through a neural network."""
    demo.infer(client, 2.0)


def demo_parts(client: Client) -> None:
    """The demo with as much work on one worker as on two; its part that hands data from worker to worker needs two."""
    demo.group_and_shuffle(client, 1.0)
    demo.reduce_more_than_memory(client, 1 / len(client.nthreads()))
    demo.infer(client, 1.0)
    demo.retry(client, 1.0)


#: Programs that compute, by name.
PROGRAMS: dict[str, Callable[[Client], None]] = {
    "frame": lambda client: frame(client, "tasks"),
    "frame-p2p": lambda client: frame(client, "p2p"),
    "array": array,
    "torch": torch,
    "demo": demo_parts,
}
