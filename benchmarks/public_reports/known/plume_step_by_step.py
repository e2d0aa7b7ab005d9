"""Ink spreads in a lake, cell by cell, for a number of steps.

source: dask/dask issue 2244
date:   2017-04-21 (its comments of 2017-06-06)
seen:   a stencil is applied many times, with map_overlap; edges are exchanged after each step, with several copies of
        the chunks, which costs more than the stencil itself. Edges that are as wide as there are steps were proposed.
cause:  each step cuts edges and corners from all neighbours of each chunk and joins them around it, for a step that
        takes a millisecond: a dozen tasks for one that computes.
cure:   overlap by as many cells as there are steps, and take the steps within one task.
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
STEPS, PATCHES, PATCH = scaled(16), 7, 240

EXPECTED = Expected(
    cause="edges are exchanged between chunks after every step, by very many small tasks, which take far longer"
    " than the"
    " steps",
    place="map_overlap in spread_each, or the computation in ink",
    cure="one exchange of edges as wide as there are steps (depth=STEPS), with all steps in one task; or fewer"
    " exchanges",
    says=r"(tiny|small|short|too many|very many|thousands of|\d{4,}|many)\W+(\w+\W+){0,3}(chunks|blocks|pieces|tasks"
    r"|edges|slices)|(chunks|blocks|pieces|tasks)\W+(\w+\W+){0,4}(tiny|small|short|thin|narrow|cut|split|sliced)"
    r"|overhead"
    r"|(each|every|after|per) (step|iteration)|overlap|edges|halo|ghost|boundar|number of tasks|(moved?|sent"
    r"|transfer\w*"
    r"|communicat\w+)\W+(\w+\W+){0,5}(each|every|between|edges|pieces)",
    places=(
        *marked(__file__),
        function("spread_each"),
        function("spread"),
        function("ink"),
        function("map_overlap"),
        r"overlap",
        r"\b(getitem|concatenate)\b",
    ),
    cures=r"depth|overlap|(several|more|all|many|of the) steps|fewer|larger|bigger|longer|fuse|together|in one"
    r" task|rechunk"
    r"|chunks?\b|blocks?\b|exchange",
    never={
        HOLDS_GIL: "one thread a worker, and tasks are nearly nothing",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "the work is in the number of tasks",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        COMPUTED_AGAIN: "nothing is computed twice",
    },
)


def drops(block_info: dict | None = None) -> np.ndarray:
    row, column = block_info[None]["chunk-location"]
    return np.random.default_rng([10, row, column]).gamma(0.3, 2.0, (PATCH, PATCH))


def lake() -> da.Array:
    chunks = ((PATCH,) * PATCHES, (PATCH,) * PATCHES)
    return da.map_blocks(drops, chunks=chunks, dtype=float, meta=np.empty((0, 0)))


def spread(water: np.ndarray) -> np.ndarray:
    """Ink after a step, in which some of it goes to the next cells."""
    around = sum(np.roll(water, shift, axis) for shift in (1, -1) for axis in (0, 1))
    return water + 0.2 * np.tanh(around - 4 * water)


def spread_all(water: np.ndarray, steps: int) -> np.ndarray:
    for _ in range(steps):
        water = spread(water)
    return water


def spread_each(water: da.Array) -> da.Array:
    for _ in range(STEPS):
        water = water.map_overlap(spread, depth=1, boundary="periodic", dtype=float)  # <- here
    return water


def spread_at_once(water: da.Array) -> da.Array:
    return water.map_overlap(spread_all, steps=STEPS, depth=STEPS, boundary="periodic", dtype=float)


def ink(water: da.Array) -> float:
    """How unevenly the ink is spread."""
    return float((water**2).mean().compute())  # <- here


def bad(client: Client) -> float:
    return ink(spread_each(lake()))  # <- here


def good(client: Client) -> float:
    return ink(spread_at_once(lake()))
