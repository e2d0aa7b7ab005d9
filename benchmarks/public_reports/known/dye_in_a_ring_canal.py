"""Dye spreads in a canal that is a ring: each step takes the neighbours of each cell, which come by rolling the array.

source: dask/dask issue 6209; of the same kind: dask/dask issue 3535
date:   2020-05-14 (issue 3535: 2018-05-25)
seen:   an array has other chunks after a roll, with a sliver of two elements at the end.
cause:  roll cuts off what goes over the edge and puts it at the other end, without joining it: chunks are shifted by a
        cell against those of the array. To add both, all chunks are cut at the borders of either. In a loop of steps,
        each one has more and smaller chunks than the last, down to chunks of one cell, and the tasks are legion.
cure:   map_overlap with boundary="periodic", or rechunk after each roll, to the chunks of before.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
REACHES, CELLS, DYES, STEPS = scaled(8), 500, 200, 15
SPREAD = 0.2

EXPECTED = Expected(
    cause="chunks of rolled arrays do not line up with those of the array, so that with each step chunks are cut into"
    " more and smaller ones, and there are far too many tasks",
    place="da.roll in step_by_rolling, or the loop, or the compute of it",
    cure="map_overlap with boundary='periodic', or rechunk after the roll",
    says=r"\broll(ed|ing|s)?\b|(many|small|smaller|tiny|more|number of|thousands of|uneven|irregular|\d{3,})\W+(\w+\W+)"
    r"{0,4}(chunks|blocks|pieces|slices|tasks)|fragment|sliver|(chunks|blocks)\W+(\w+\W+){0,6}(grow|shrink|split|cut"
    r"|align|line up|match|small|tiny)|misalign|unaligned|(graph|tasks)\W+(\w+\W+){0,6}(grow|grew|large|big|tiny|short"
    r"|overhead|small)|overhead",
    places=(*marked(__file__), function("step_by_rolling"), function("rolled"), r"\broll\b|unify_chunks"),
    cures=r"map_overlap|overlap|halo|ghost|rechunk|(bigger|larger|fewer) (chunks|blocks|tasks|pieces)|same chunks|align"
    r"|periodic|map_blocks|fewer, (larger|bigger|longer)|(longer|larger|bigger) tasks|without (the )?roll|one chunk"
    r"|persist",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "there is hardly any work",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN.replace(r"|persist\(\)", ""): "there is one computation",
        LOCK: "there is none",
    },
)


def canal() -> da.Array:
    """Dyes along the canal at the beginning."""
    noise = da.random.default_rng(6209)
    dye: da.Array = noise.random((REACHES * CELLS, DYES), chunks=(CELLS, DYES))
    return dye


def step_by_rolling(dye: da.Array) -> da.Array:
    """Dye a step later."""
    left = da.roll(dye, 1, axis=0)  # <- here
    right = da.roll(dye, -1, axis=0)  # <- here
    later: da.Array = dye + SPREAD * (left - 2 * dye + right) - 0.01 * dye * dye  # <- here
    return later


def rolled() -> float:
    dye = canal()
    for _ in range(STEPS):
        dye = step_by_rolling(dye)
    return float((dye**3).sum().compute())  # <- here


def steps_of_reach(dye: np.ndarray) -> np.ndarray:
    """Dye all steps later in a reach that has as many cells of its neighbours, which get worthless from outside in."""
    for _ in range(STEPS):
        left, right = np.roll(dye, 1, axis=0), np.roll(dye, -1, axis=0)
        dye = dye + SPREAD * (left - 2 * dye + right) - 0.01 * dye * dye
    return dye


def overlapped() -> float:
    """The same in reaches that overlap."""
    depth = {0: STEPS, 1: 0}
    later = da.map_overlap(steps_of_reach, canal(), depth=depth, boundary={0: "periodic", 1: "none"}, dtype=float)
    return float((later**3).sum().compute())


def bad(client: Client) -> float:
    return rolled()


def good(client: Client) -> float:
    return overlapped()
