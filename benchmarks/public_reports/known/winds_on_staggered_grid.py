"""Winds of a staggered grid become vorticity, energy and their transport, by differences and means of neighbours.

source: xgcm/xgcm issue 107; of the same kind: xgcm/xgcm issue 251
date:   2018-07-09 (issue 251: 2020-09-29)
seen:   differences and interpolations on the grid leave chunks of size 1 along the axis; the data have to be rechunked
        before anything else can be done with them.
cause:  a neighbour is made by cutting off one row and joining it at the other end, so each step leaves another sliver
        one cell wide; chunks of the next step are cut at all of them, and there are dozens of tiny tasks for each map.
cure:   roll within the chunk, which has the whole axis (or map_overlap), or rechunk after each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
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
DAYS, SIDE = scaled(20), 240
#: Makes the array of the neighbours along an axis.
Neighbour: TypeAlias = Callable[[da.Array, int], da.Array]
ALONG_Y, ALONG_X = 1, 2

EXPECTED = Expected(
    cause="each neighbour is joined from two pieces, which leaves chunks that are one cell wide; the arrays that follow"
    " are cut at all of these places, into very many tiny chunks and tasks",
    place="the concatenate in joined, used by difference and average; or the computation in transport",
    cure="keep the chunks whole: np.roll in map_blocks, map_overlap, or rechunk after each step",
    says=r"(tiny|small|short|thin|narrow|uneven|irregular|too many|very many|thousands of|\d{4,}|many)\W+(\w+\W+){0,3}"
    r"(chunks|blocks|pieces|tasks|slivers)|(chunks|blocks|pieces|tasks)\W+(\w+\W+){0,4}(tiny|small|short|thin|narrow"
    r"|uneven|irregular|cut|split)|overhead|fragment|size 1\b|(more|longer) (time )?(for|on|in|than) (the )?(overhead"
    r"|scheduling)",
    places=(
        *marked(__file__),
        function("joined"),
        function("difference"),
        function("average"),
        function("transport"),
        function("concatenate"),
    ),
    cures=r"rechunk|chunks?\b|blocks?\b|overlap|fewer|larger|bigger|longer|fuse|together|in one task",
    never={
        HOLDS_GIL: "one thread a worker, and tasks are nearly nothing",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "the work is in the number of tasks",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
    },
)


def wind(component: int, block_info: dict | None = None) -> np.ndarray:
    day = block_info[None]["chunk-location"][0]
    return np.random.default_rng([component, day]).normal(0.0, 5.0, (1, SIDE, SIDE))


def winds() -> list[da.Array]:
    chunks = ((1,) * DAYS, (SIDE,), (SIDE,))
    meta = np.empty((0, 0, 0))
    return [da.map_blocks(wind, component, chunks=chunks, dtype=float, meta=meta) for component in (0, 1)]


def joined(field: da.Array, axis: int) -> da.Array:
    """Values of the next cells, on a grid that goes round."""
    first = tuple(slice(1) if axis == other else slice(None) for other in range(field.ndim))
    others = tuple(slice(1, None) if axis == other else slice(None) for other in range(field.ndim))
    return da.concatenate([field[others], field[first]], axis=axis)  # <- here


def rolled(field: da.Array, axis: int) -> da.Array:
    """Values of the next cells, where each chunk has the whole axis."""
    return field.map_blocks(np.roll, -1, axis=axis, dtype=float)


def difference(field: da.Array, axis: int, neighbour: Neighbour) -> da.Array:
    return neighbour(field, axis) - field  # <- here


def average(field: da.Array, axis: int, neighbour: Neighbour) -> da.Array:
    return (neighbour(field, axis) + field) / 2  # <- here


def transport(neighbour: Neighbour) -> float:
    """Mean transport of vorticity by the wind."""
    east, north = winds()
    vorticity = difference(north, ALONG_X, neighbour) - difference(east, ALONG_Y, neighbour)
    energy = average(east**2, ALONG_X, neighbour) + average(north**2, ALONG_Y, neighbour)
    along_x = average(vorticity, ALONG_Y, neighbour) * difference(energy, ALONG_X, neighbour)
    along_y = average(vorticity, ALONG_X, neighbour) * difference(energy, ALONG_Y, neighbour)
    total = difference(along_x, ALONG_X, neighbour) + difference(along_y, ALONG_Y, neighbour)
    return float(abs(total).mean().compute())  # <- here


def bad(client: Client) -> float:
    return transport(joined)  # <- here


def good(client: Client) -> float:
    return transport(rolled)
