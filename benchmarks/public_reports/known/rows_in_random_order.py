"""The rows of an array are put in random order by an index, before they are used in batches.

source: dask/dask issue 3409 (the cure: pull request 3901); NVIDIA/cuml issue 2189; distributed issue 8774
date:   2018-07-16
seen:   indexing with a shuffled index takes seconds even for small arrays, with a warning of many more chunks.
cause:  each block of the result has rows of every block of the array: tasks that cut, move and join pieces grow with
        the square of the number of blocks, and are tiny.
cure:   take the blocks in random order, and shuffle rows within each, which serves batches as well.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import MORE_MEMORY, MORE_WORKERS, TWO_BY_ONE, Expected, marked, scaled

CLUSTER = TWO_BY_ONE
BLOCKS, ROWS, COLUMNS = scaled(45), 1_000, 40

EXPECTED = Expected(
    cause="a random index takes rows of all blocks for each block: very many tiny tasks and transfers",
    place="the indexing, its tasks, or the computation",
    cure="shuffle whole blocks, and rows within them",
    says=r"index|slic|take|shuffl|getitem|(small|short|tiny|many) (\w+ )?(tasks|chunks|pieces|transfers)"
    r"|overhead|scheduler|too many|tasks per|transfer|all[- ]to[- ]all|number of tasks|milliseconds",
    places=(*marked(__file__), r"getitem|take|shuffle|concatenate|split|sorter|index"),
    cures=r"fewer|bigger|larger|longer tasks|chunk|rechunk|within|sort|order|blocks|avoid|shuffle|batch|map_blocks",
    never={
        MORE_WORKERS: "workers wait for the scheduler",
        MORE_MEMORY: "the array has 14 MB",
    },
)


def samples(block_info: dict | None = None) -> np.ndarray:
    return np.random.default_rng(block_info[None]["chunk-location"][0]).random((ROWS, COLUMNS))


def table() -> da.Array:
    return da.map_blocks(samples, chunks=((ROWS,) * BLOCKS, (COLUMNS,)), dtype=float, meta=np.empty((0, 0)))


def loss(batch: np.ndarray) -> np.ndarray:
    return np.square(batch).sum(axis=1, keepdims=True)


def bad(client: Client) -> float:
    order = np.random.default_rng(0).permutation(BLOCKS * ROWS)
    shuffled = table()[order]  # <- here
    losses = shuffled.map_blocks(loss, chunks=(shuffled.chunks[0], (1,)), meta=np.empty((0, 0)))
    return float(losses.sum().compute())  # <- here


def mixed(block: np.ndarray) -> np.ndarray:
    return np.random.default_rng(len(block)).permutation(block)


def good(client: Client) -> float:
    order = np.random.default_rng(0).permutation(BLOCKS)
    blocks = table()
    shuffled = da.concatenate([blocks.blocks[int(number)] for number in order])
    shuffled = shuffled.map_blocks(mixed, meta=np.empty((0, 0)))
    losses = shuffled.map_blocks(loss, chunks=(shuffled.chunks[0], (1,)), meta=np.empty((0, 0)))
    return float(losses.sum().compute())
