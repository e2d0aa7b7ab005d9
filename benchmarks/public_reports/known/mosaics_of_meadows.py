"""Mosaics of meadows and their overviews, in tiles of a few kilobytes.

source: fmi-faim/faim-ipa issue 72
date:   2024-01-03
seen:   stitched pictures of many wells, each with a pyramid of smaller versions, are sent to the scheduler as one graph
        of some ten thousand tasks each; the scheduler is busy with its books, and large acquisitions stay very slow.
cause:  each tile of each level is a task of its own, which takes far less time than the scheduler spends for it.
cure:   fewer and larger tasks (large chunks; stitching and binning in one), and not all graphs at once.
"""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
MEADOWS = scaled(2)
SIDE = 1024
SMALL, LARGE = 64, 1024
LEVELS = 4

EXPECTED = Expected(
    cause="thousands of tasks of a fraction of a millisecond: tiles of 64 pixels, at each level of each overview",
    place="the map_blocks() with its small chunks, the coarsen(), or the compute() of all of it",
    cure="larger chunks, several steps in one task, one meadow after the other",
    says=r"overhead|scheduler.{0,40}(busy|bottleneck|limit|keep up|cpu)|little work"
    r"|(many|thousands of|too|very|so|tiny|small|short|brief) (\w+ ){0,2}(tasks|chunks|tiles|blocks)"
    r"|(tasks?|chunks|tiles|blocks)\b.{0,30}\b(small|short|tiny|brief|many)"
    r"|(longer|larger|bigger|fewer) (and \w+ )?(tasks|chunks|blocks)|(tasks|chunks|blocks) (longer|larger|bigger)",
    places=(*marked(__file__), function("pictures"), function("tile_of"), function("overviews")),
    cures=r"(larger|bigger|longer|fewer)\b.{0,40}\b(tasks?|chunks?|tiles?|blocks?)|rechunk|batch|group|combine|merge"
    r"|(tasks?|chunks?|tiles?|blocks?)\b.{0,20}\b(larger|bigger|longer)|several|one task|one after",
    never={
        MORE_WORKERS: "the workers wait for the scheduler",
        HOLDS_GIL: "the work of a task is nothing",
        PROCESSES: "the work of a task is nothing",
        MORE_MEMORY: "memory is ample",
    },
)


def tile_of(meadow: int, block_info: Any = None) -> np.ndarray:
    """Brightness of a tile, by its place in the mosaic."""
    (top, bottom), (left, right) = block_info[None]["array-location"]
    rows, columns = np.arange(top, bottom)[:, None], np.arange(left, right)[None, :]
    return np.asarray(np.sin(rows / 37 + meadow) * np.cos(columns / 53) + 1.5)


def pictures(meadow: int, side: int) -> da.Array:
    count = SIDE // side
    chunks = ((side,) * count, (side,) * count)
    picture: da.Array = da.map_blocks(tile_of, meadow, chunks=chunks, dtype=float)  # <- here
    return picture


def overviews(picture: da.Array) -> list[da.Array]:
    """Total of the squares of each level."""
    totals = [(picture**2).sum()]
    for _ in range(LEVELS):
        picture = da.coarsen(np.mean, picture, {0: 2, 1: 2})  # <- here
        totals.append((picture**2).sum())  # <- here
    return totals


def bad(client: Client) -> float:
    totals = [overviews(pictures(meadow, SMALL)) for meadow in range(MEADOWS)]  # <- here
    return float(np.sum(dask.compute(*totals)))  # <- here


def good(client: Client) -> float:
    totals = [overviews(pictures(meadow, LARGE)) for meadow in range(MEADOWS)]
    return float(np.sum(dask.compute(*totals)))
