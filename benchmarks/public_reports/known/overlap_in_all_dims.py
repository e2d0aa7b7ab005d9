"""Blocks of a four-dimensional array are mapped with an overlap in all dimensions, though two need it.

source: dask/dask issue 3671
date:   2018-06-26
seen:   a filter for single pixels of each image of a stack of stacks needs more than ten times the memory with
        map_overlap than with map_blocks, and had to be stopped.
cause:  depth=1 stands for all dimensions: each block gets a border from up to 80 neighbours, of which it needs those
        within the image; making the borders takes more tasks and time than the filter.
cure:   an overlap only in the dimensions of the image, as a dict; or blocks with whole images, and none at all.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
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
SHAPE, CHUNKS = (scaled(48), 48, 96, 96), (12, 12, 48, 48)

EXPECTED = Expected(
    cause="map_overlap makes and cuts off borders in all four dimensions: most tasks and most of the time are"
    " slicing and"
    " concatenating pieces of neighbouring blocks (and moving them between workers), not the filter",
    place="the map_overlap(); its tasks (overlap, getitem, concatenate, trim)",
    cure="depth only for the last two dimensions, or chunks with whole images (map_blocks), or larger chunks",
    says=r"overlap|halo|border|neighbou?r|ghost|(too )?many (\w+ )?tasks|number of tasks|small(er)? (tasks"
    r"|chunks|blocks|pieces)"
    r"|tasks are (too )?(small|short)|overhead|getitem|concatenat|slic|transfer|sent|mov(e|ed|ing)\b"
    r"|scheduler|\bgraph\b|trim",
    places=(
        *marked(__file__),
        function("map_overlap"),
        function("bad"),
        function("spots"),
        r"overlap|getitem|concatenate|trim|dead_pixels|finalize",
    ),
    cures=r"depth|overlap|map_blocks|(larger|bigger|fewer|coarser|whole) (\w+ )?(chunks|blocks|images|pieces"
    r"|tasks|dimensions?)|rechunk"
    r"|only (in|along|for)|chunks? (larger|bigger)|fewer",
    never={
        MORE_WORKERS: "the work is needless",
        PROCESSES: "one thread a worker",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each block is made once",
    },
)


def detector(block_info=None) -> np.ndarray:
    where = block_info[None]
    rng = np.random.default_rng(sum(place * 31**power for power, place in enumerate(where["chunk-location"])))
    return rng.integers(0, 40, where["chunk-shape"], dtype="int32")


def dead_pixels(images: np.ndarray) -> np.ndarray:
    """Replace zeros by what is left of and above them."""
    filled = images.copy()
    dead = images == 0
    beside = (np.roll(images, 1, -1) + np.roll(images, 1, -2)) // 2
    filled[dead] = beside[dead]
    return filled


def spots() -> da.Array:
    chunks = tuple((chunk,) * (length // chunk) for length, chunk in zip(SHAPE, CHUNKS, strict=True))
    return da.map_blocks(detector, chunks=chunks, dtype="int32", meta=np.empty((0,) * 4, "int32"))


def bad(client: Client) -> float:
    filled = spots().map_overlap(dead_pixels, depth=1, boundary="periodic", dtype="int32")  # <- here
    return float(filled.mean(axis=(0, 1)).std().compute())  # <- here


def good(client: Client) -> float:
    depth = {0: 0, 1: 0, 2: 1, 3: 1}
    filled = spots().map_overlap(dead_pixels, depth=depth, boundary="periodic", dtype="int32")
    return float(filled.mean(axis=(0, 1)).std().compute())
