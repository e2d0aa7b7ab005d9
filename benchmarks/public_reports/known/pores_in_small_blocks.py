"""A volume of a scanned rock is in small cubes, and each needs a border from all of its neighbours.

source: dask/dask pull request 7595; the measurements in it are from dask/dask issue 7404
date:   2021-04-28
seen:   for a volume of 2048 voxels a side, in chunks of 64, map_overlap makes a million tasks of 33 thousand chunks; it
        takes many seconds before anything starts, while map_blocks on the same chunks is made at once.
cause:  a block has up to 26 neighbours, from each of which map_overlap cuts a piece in a task of its own, to glue them
        together in others: with small blocks these tasks, and not the filter, are the work.
cure:   larger chunks: far fewer blocks, with less border each (or no overlap in dimensions that need none).
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
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
#: Voxels of the volume, and of a side of a small and of a large cube.
SHAPE = (scaled(4) * 48, 384, 384)
SMALL, LARGE = 48, 96

EXPECTED = Expected(
    cause="map_overlap on many small blocks: for each of them dozens of tasks cut pieces from neighbours, move and glue"
    " them; that takes far more time than the filter",
    place="the map_overlap() or the compute(); the chunks of the volume; tasks overlap, getitem, concatenate, trim",
    cure="larger chunks (rechunk, or make the volume with them)",
    says=r"overlap|halo|border|neighbou?r|ghost|(too )?many (\w+ ){0,2}(tasks|chunks|blocks)|number of tasks"
    r"|small(er)? (\w+ )?(tasks|chunks|blocks|pieces)|(tasks|chunks|blocks) are (too |very )?(small|short)"
    r"|overhead|getitem|concatenat|slic|scheduler|\bgraph\b|trim",
    places=(
        *marked(__file__),
        function("map_overlap"),
        function("bad"),
        function("volume"),
        function("pores"),
        r"overlap|getitem|concatenate|trim|smoothed",
    ),
    cures=r"(larger|bigger|fewer|coarser|longer) (and \w+ )?(chunks|blocks|pieces|tasks|cubes)|rechunk"
    r"|(chunks|blocks|tasks)\b.{0,20}\b(larger|bigger|longer)|chunk ?size|depth",
    never={
        MORE_WORKERS: "the tasks are too small",
        PROCESSES: "the filter is NumPy's and does not hold the GIL",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each block is made once",
    },
)


def density(block_info=None) -> np.ndarray:
    """Density of a part of the rock, by its place."""
    (z0, z1), (y0, y1), (x0, x1) = block_info[None]["array-location"]
    z, y, x = np.ogrid[z0:z1, y0:y1, x0:x1]
    return np.sin(0.11 * z + 0.07 * y) * np.cos(0.09 * x - 0.05 * z) + 0.1 * ((7 * z + 13 * y + 29 * x) % 11)


def smoothed(block: np.ndarray) -> np.ndarray:
    """Mean of each voxel and the two beside it, along all three axes."""
    for axis in range(3):
        block = (block + np.roll(block, 1, axis) + np.roll(block, -1, axis)) / 3.0
    return block


def volume(side: int) -> da.Array:
    chunks = tuple(da.core.normalize_chunks(side, SHAPE))
    return da.map_blocks(density, chunks=chunks, dtype="f8", meta=np.empty((0, 0, 0)))


def pores(rock: da.Array) -> float:
    smooth = rock.map_overlap(smoothed, depth=1, boundary="reflect", dtype="f8")  # <- here
    return float((smooth < 0.2).mean().compute())  # <- here


def bad(client: Client) -> float:
    return pores(volume(SMALL))  # <- here


def good(client: Client) -> float:
    return pores(volume(LARGE))
