"""Measurements of a radio telescope are drawn as a density map for each baseline, block by block of rows.

source: ratt-ru/shadeMS issue 29
date:   2020-04-18
seen:   to save memory, blocks of rows were made smaller. From 1e5 to 1e4 rows that helped; with 1e3 rows, the memory
        doubled, cores were idle, and plots took ten times as long.
cause:  each block of rows, however small, makes a canvas for all baselines, and all canvases are added up: their size
        does not depend on the rows, so that smaller blocks mean more canvases.
cure:   larger blocks of rows.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
ROWS = scaled(6_000_000)
BLOCK = 7_500
BASELINES = 28
SIDE = 192

EXPECTED = Expected(
    cause="small chunks of rows each make a whole canvas of 8 MB: far more is moved and added than there are rows",
    place="the canvases, or the number of rows in a chunk",
    cure="larger chunks of rows, so that there are fewer canvases",
    says=r"(small|many|tiny) (chunks|blocks|pieces|partitions)|chunks? (is|are) (too )?small"
    r"|(larger|bigger) than .{0,30}(inputs?|chunks?|rows)"
    r"|transfer|mov(es|ed|ing)\b.{0,30}between workers|copied between|canvas"
    r"|(large|big|\d+ MiB) (results?|outputs?|intermediate)"
    r"|(many|small|short) tasks|tasks? (are|were) (too )?(small|short)|partial|too many tasks",
    places=(*marked(__file__), function("canvas_of"), function("drawn"), function("measurements")),
    cures=r"(larger|bigger|fewer|longer) (and (larger|bigger|fewer|longer) )?(chunks|blocks|tasks|partitions|canvas\w*)"
    r"|fewer, (larger|longer)|chunks? (larger|bigger)|rechunk|more rows|smaller (canvas|result)|sparse",
    never={
        COMPUTED_AGAIN: "all is computed once",
        MORE_WORKERS: "there are as many canvases, and more to move",
        r"(?i)(make|use|try) (the )?(smaller|more) (chunks|blocks|partitions)"
        r"|(chunks|blocks) smaller": "it is the fault",
    },
)


def measurements(block: int) -> da.Array:
    """Rows of baseline, time and amplitude, the latter two in [0, 1)."""
    return da.random.default_rng(9).random((ROWS, 3), chunks=(100_000, 3)).rechunk((block, 3))  # <- here


def canvas_of(rows: np.ndarray) -> np.ndarray:
    """Number of points in each cell of each baseline's map."""
    baseline = (rows[:, 0] * BASELINES).astype(int)
    across, up = (rows[:, 1] * SIDE).astype(int), (rows[:, 2] ** 2 * SIDE).astype(int)
    cells = (baseline * SIDE + up) * SIDE + across
    counts = np.bincount(cells, minlength=BASELINES * SIDE * SIDE).astype(float)
    return counts.reshape(1, BASELINES, SIDE, SIDE)


def drawn(rows: da.Array) -> float:
    shape = ((1,) * rows.numblocks[0], (BASELINES,), (SIDE,), (SIDE,))
    canvases = rows.map_blocks(canvas_of, chunks=shape, drop_axis=1, new_axis=[1, 2, 3], dtype=float)  # <- here
    total = canvases.sum(axis=0).compute()  # <- here
    return float(np.log1p(total).sum())


def bad(client: Client) -> float:
    return drawn(measurements(BLOCK))  # <- here


def good(client: Client) -> float:
    return drawn(measurements(200_000))
