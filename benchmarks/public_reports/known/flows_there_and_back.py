"""Journeys between towns are counted by the town they start from, and compared with the journeys back.

source: dask/dask issue 4763
date:   2019-04-30
seen:   an array whose chunks are narrow strips, plus its own transpose, has a hundred times as many chunks as before;
        there is a warning of it, which does not say what to do.
cause:  strips of rows meet strips of columns, so both arrays are cut at all edges of both: each strip is sliced into as
        many little squares as there are strips, and there are tasks for each of them.
cure:   rechunk to squares of about the same size as the strips before the transpose.
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
STRIPS, STRIP = scaled(72), 50
TOWNS = STRIPS * STRIP
SQUARE = 600

EXPECTED = Expected(
    cause="strips of rows and strips of columns have different chunks, so the difference is made in very many tiny"
    " squares, with tasks to slice and subtract each of them",
    place="the difference in one_way, or its computation",
    cure="rechunk to squares before the transpose, so that chunks of both fit",
    says=r"(tiny|small|short|narrow|too many|very many|thousands of|\d{4,}|many)\W+(\w+\W+){0,3}(chunks|blocks|pieces"
    r"|tasks|squares)|(chunks|blocks|pieces|tasks)\W+(\w+\W+){0,4}(tiny|small|short|thin|narrow|cut|split|sliced|do not"
    r"|don't|differ|mismatch|misalign)|different chunks|not (fit|match|aligned?)|misalign|mismatch|overhead|fragment"
    r"|number of (chunks|tasks)|sliced? (in|into|up)|rechunk",
    places=(*marked(__file__), function("one_way"), r"\bsub(tract)?\b", r"\btranspose\b", r"\bgetitem\b"),
    cures=r"rechunk|chunks?\b|blocks?\b|squares?|fewer|larger|bigger|longer|fuse|same shape|align",
    never={
        HOLDS_GIL: "one thread a worker, and tasks are nearly nothing",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "the work is in the number of tasks",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        COMPUTED_AGAIN: "nothing is computed twice",
    },
)


def journeys(block_info: dict | None = None) -> np.ndarray:
    """Journeys from the towns of a strip to all towns."""
    strip = block_info[None]["chunk-location"][0]
    return np.random.default_rng([4, strip]).gamma(2.0, 50.0, (STRIP, TOWNS))


def flows() -> da.Array:
    chunks = ((STRIP,) * STRIPS, (TOWNS,))
    return da.map_blocks(journeys, chunks=chunks, dtype=float, meta=np.empty((0, 0)))


def one_way(there: da.Array) -> float:
    """Mean of the journeys that nobody makes in the other direction."""
    surplus = there - there.T  # <- here
    return float(abs(surplus).mean().compute())  # <- here


def bad(client: Client) -> float:
    return one_way(flows())  # <- here


def good(client: Client) -> float:
    return one_way(flows().rechunk((SQUARE, SQUARE)))
