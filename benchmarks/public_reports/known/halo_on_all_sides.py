"""A difference along one axis of a stack is taken with an overlap in all axes.

source: dask/dask issue 3671; dask/dask issue 3645
date:   2018-06-26
seen:   with map_overlap a computation takes many times the memory, and far longer, than the same with map_blocks.
cause:  a depth for every axis makes each block borrow from all its neighbours, 26 in three dimensions: for each of them
        there is a task, and pieces to move and join, although the function looks along one axis only.
cure:   a depth for the axis that needs it.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import MORE_WORKERS, TWO_BY_ONE, Expected, function, marked, scaled

CLUSTER = TWO_BY_ONE
BLOCKS, SIDE = scaled(6), 24

EXPECTED = Expected(
    cause="an overlap in all axes: very many tiny tasks, and moves between neighbours, of which two are needed",
    place="the map_overlap, its tasks, or the computation",
    cure="depth for one axis only, or bigger chunks",
    says=r"overlap|depth|halo|getitem|(small|short|tiny|many|numerous) (\w+ )?(tasks|chunks|pieces|transfers)|overhead"
    r"|scheduler|too many|tasks per|transfer|number of tasks|neighbou?r|milliseconds|concatenat",
    places=(*marked(__file__), r"getitem|overlap|concatenate|trim|map_blocks", function("steps")),
    cures=r"depth|axis|overlap|fewer|bigger|larger|longer tasks|chunk|rechunk|map_blocks",
    never={MORE_WORKERS: "workers wait for the scheduler"},
)


def voxels(block_info: dict | None = None) -> np.ndarray:
    place = block_info[None]["chunk-location"]
    return np.random.default_rng(place).random((SIDE, SIDE, SIDE))


def stack() -> da.Array:
    chunks = ((SIDE,) * BLOCKS,) * 3
    return da.map_blocks(voxels, chunks=chunks, dtype=float, meta=np.empty((0, 0, 0)))


def steps(block: np.ndarray) -> np.ndarray:
    return np.abs(block - np.roll(block, 1, axis=1))


def bad(client: Client) -> float:
    moved = stack().map_overlap(steps, depth=1, boundary="periodic", meta=np.empty((0, 0, 0)))  # <- here
    return float(moved.mean().compute())  # <- here


def good(client: Client) -> float:
    moved = stack().map_overlap(steps, depth={1: 1}, boundary="periodic", meta=np.empty((0, 0, 0)))
    return float(moved.mean().compute())
