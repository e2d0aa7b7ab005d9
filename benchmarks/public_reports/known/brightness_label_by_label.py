"""The brightness of each cell of a labelled image is summed up by a mask of its own.

source: dask/dask-image issue 238 (sum_labels is some hundred times slower than scipy's sum)
date:   2021-06-01
seen:   sums for a few thousand labels take 23 s, of which much before anything is computed; scipy needs 0.1 s.
cause:  each label is an expression of its own, which compares the whole image with it: labels times chunks tasks, each
        of which goes through a chunk for the few pixels of one label.
cure:   one task for each chunk, that sums for all labels in one pass; the sums of the chunks are added.
"""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CELLS = scaled(90)
PLANES, SIDE = 16, 640

EXPECTED = Expected(
    cause="each cell has tasks of its own for every chunk, so that the image is gone through once for each cell",
    place="the loop over the cells, where it masks and sums, or where it computes",
    cure="sums for all cells in one task per chunk",
    says=r"(many|small|short|tiny|number of|thousands? of|too many|\d+ tasks?|tasks? per|per task).{0,40}\btasks?\b"
    r"|tasks?\b.{0,40}\b(many|small|short|tiny|overhead)|overhead|scheduler|once (for|per) each"
    r"|for (each|every)|again and again|over and over|whole (image|array|chunk)|one (by|after)|repeated|times over"
    r"|many times|\bloop\b|graph",
    places=(*marked(__file__), function("brightness"), function("of_cell"), function("bad")),
    cures=r"one pass|(one|single) task|fewer|longer tasks|together|map_blocks|map_overlap|bincount|group|batch|combine"
    r"|all (labels|at once|cells|of them)|at once|in one|several .{0,20}(in|per) (a|one|each)|blockwise|reduction|merge"
    r"|once (for|per)",
    never={
        MORE_WORKERS: "each has the same needless work",
        MORE_MEMORY: "the image is small",
        HOLDS_GIL: "a worker has one thread",
    },
)


def cells(block_info: dict | None = None) -> np.ndarray:
    """Labels of some planes: cells of all sizes, in no order."""
    plane = block_info[None]["array-location"][0][0]
    return np.random.default_rng(plane).integers(0, CELLS + 1, (2, SIDE, SIDE), dtype="i4")


def photons(block_info: dict | None = None) -> np.ndarray:
    plane = block_info[None]["array-location"][0][0]
    return np.random.default_rng(1000 + plane).random((2, SIDE, SIDE))


def recording() -> tuple[da.Array, da.Array]:
    layout = {"chunks": ((2,) * (PLANES // 2), (SIDE,), (SIDE,)), "meta": np.empty((0, 0, 0))}
    return da.map_blocks(cells, dtype="i4", **layout), da.map_blocks(photons, dtype="f8", **layout)


def of_cell(labels: da.Array, image: da.Array, cell: int) -> da.Array:
    return da.where(labels == cell, image, 0.0).sum()  # <- here


def brightness(labels: da.Array, image: da.Array) -> np.ndarray:
    sums = [of_cell(labels, image, cell) for cell in range(1, CELLS + 1)]  # <- here
    return np.array(dask.compute(*sums))  # <- here


def sums_of_chunk(labels: np.ndarray, image: np.ndarray) -> np.ndarray:
    return np.bincount(labels.ravel(), image.ravel(), CELLS + 1)[np.newaxis]


def brightness_by_chunk(labels: da.Array, image: da.Array) -> np.ndarray:
    chunks = [
        dask.delayed(sums_of_chunk)(*pair)
        for pair in zip(labels.to_delayed().ravel(), image.to_delayed().ravel(), strict=True)
    ]
    return np.concatenate(dask.compute(*chunks)).sum(axis=0)[1:]


def evenness(sums: np.ndarray) -> float:
    return float(np.log(sums).mean())


def bad(client: Client) -> float:
    return evenness(brightness(*recording()))  # <- here


def good(client: Client) -> float:
    return evenness(brightness_by_chunk(*recording()))
