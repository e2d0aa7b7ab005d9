"""A high quantile of each pixel is taken over a short time axis that has gaps.

source: pydata/xarray issue 9692 (a cure since: dask/dask pull request 11473)
date:   2024-10-28
seen:   a quantile over some 50 to 120 dates takes 30 to 40 times as long as the median, hours instead of minutes; with
        more threads a worker, each task takes longer still.
cause:  for arrays with gaps, numpy's quantile is a Python loop over the pixels, each a call for one short series; it
        holds the GIL, so threads take turns.
cure:   a quantile for whole blocks: sort the block along time, then take what is at the place of the quantile.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
DATES, SIDE, ROWS, BLOCKS = 60, 40, scaled(200), 32

EXPECTED = Expected(
    cause="the quantile is a Python loop over pixels, which holds the GIL",
    place="the nanquantile in the task, or the line that asks for the result",
    cure="sort the whole block at once",
    says=r"quantile|along_axis|pixel|one by one|(by|each|every|per|for) (row|column|series|slice|pixel|element)"
    r"|Python (loop|for|code|bytecode|by)|in Python\b|\bGIL\b|interpreted|1-?d\b",
    places=(*marked(__file__), function("high_values"), r"quantile", r"apply_along_axis"),
    cures=r"da\.nan|nanquantile|dask\.array|vectori[sz]|whole (array|block|axis|column)|sort|np\.partition|at once"
    r"|numba|numpy|loop|instead of|compiled",
    never={
        LONGER_TASKS: "a task takes some tenths of a second or more",
        MORE_WORKERS: "both cores are busy",
    },
)


def scenes(block_info: dict | None = None) -> np.ndarray:
    row = block_info[None]["chunk-location"][1]
    values = np.random.default_rng(row).gamma(2.0, 1.0, (DATES, SIDE, ROWS))
    values[values < 0.2] = np.nan
    return values


def series() -> da.Array:
    chunks = ((DATES,), (SIDE,) * BLOCKS, (ROWS,))
    return da.map_blocks(scenes, chunks=chunks, dtype=float, meta=np.empty((0, 0, 0)))


def high_values(block: np.ndarray) -> np.ndarray:
    return np.nanquantile(block, 0.9, axis=0)  # <- here


def bad(client: Client) -> float:
    high = series().map_blocks(high_values, drop_axis=0, dtype=float, meta=np.empty((0, 0)))  # <- here
    return float(high.mean().compute())  # <- here


def high_values_at_once(block: np.ndarray) -> np.ndarray:
    known = np.isfinite(block).sum(axis=0)
    place = 0.9 * (known - 1)
    below = np.floor(place).astype(int)
    ordered = np.sort(block, axis=0)
    lower = np.take_along_axis(ordered, below[None], axis=0)[0]
    upper = np.take_along_axis(ordered, np.minimum(below + 1, known - 1)[None], axis=0)[0]
    return lower + (upper - lower) * (place - below)


def good(client: Client) -> float:
    high = series().map_blocks(high_values_at_once, drop_axis=0, dtype=float, meta=np.empty((0, 0)))
    return float(high.mean().compute())
