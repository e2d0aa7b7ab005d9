"""Corals in a tank, scanned in layers, each grown by two voxels.

source: fideus-labs/ngff-zarr issue 48
date:   2024-01-25
seen:   map_overlap of large images in three dimensions made about a hundred tasks for each block; the scheduler took
        hours for the graph of a large one.
cause:  in three dimensions each block is put together from its 26 neighbours, each piece with tasks of its own: there
        are very many small tasks, and only one of them does the work.
cure:   send each worker the position of a block, so that one task reads the block with its margin from the store.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client
from scipy.ndimage import maximum_filter

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("scipy",)
CLUSTER = TWO_BY_TWO
BLOCK = 16
BLOCKS = (scaled(8), 8, 8)
SHAPE = tuple(number * BLOCK for number in BLOCKS)
MARGIN = 2

EXPECTED = Expected(
    cause="map_overlap in three dimensions makes very many small tasks for each block",
    place="the line of map_overlap, or that of the compute",
    cure="one task for each block, which reads its margin itself, or much larger blocks",
    says=r"(many|small|short|tiny|brief).{0,30}tasks?|tasks?.{0,40}(small|short|tiny|many|brief)|overhead|overlap"
    r"|\bgraphs?\b|margin|halo|neighbou?r|scheduler.{0,40}(busy|time|load)|(chunks?|blocks?).{0,30}(small|tiny)"
    r"|(small|tiny) (chunks?|blocks?)",
    places=(*marked(__file__), function("grown")),
    cures=r"(larger|bigger|fewer|longer|greater).{0,40}(chunks?|blocks?|tasks?)"
    r"|(chunks?|blocks?|tasks?).{0,40}(larger|bigger|fewer|longer)|one task|read.{0,60}(margin|halo|overlap|neighbou?r)"
    r"|rechunk|batch|map_blocks|fewer dimensions",
    never={
        MORE_WORKERS: "the scheduler is the limit",
        MORE_MEMORY: "there is little data",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def scan() -> Path:
    return folder("corals") / "scan.npy"


def prepare() -> None:
    rng = np.random.default_rng(26)
    np.save(scan(), (rng.random(SHAPE) * (rng.random(SHAPE) > 0.98)).astype("float32"))


def read(path: Path, block_info: dict) -> np.ndarray:
    where = tuple(slice(*ends) for ends in block_info[None]["array-location"])
    return np.array(np.load(path, mmap_mode="r")[where])


def grown(tissue: np.ndarray) -> np.ndarray:
    return maximum_filter(tissue, size=2 * MARGIN + 1, mode="nearest")


def mass_of_block(path: Path, corner: tuple[int, ...]) -> float:
    """Mass of a grown block, of which the margin is left out again."""
    starts = [max(0, first - MARGIN) for first in corner]
    where = tuple(slice(start, first + BLOCK + MARGIN) for start, first in zip(starts, corner, strict=True))
    tissue = grown(np.array(np.load(path, mmap_mode="r")[where]))
    inner = tuple(slice(first - start, first - start + BLOCK) for start, first in zip(starts, corner, strict=True))
    return float(tissue[inner].sum(dtype="float64"))


def bad(client: Client) -> float:
    chunks = tuple((BLOCK,) * number for number in BLOCKS)
    tank = da.map_blocks(read, scan(), chunks=chunks, dtype="float32", meta=np.empty((0, 0, 0), "float32"))
    corals = tank.map_overlap(grown, depth=MARGIN, boundary="none")  # <- here
    return float(corals.sum(dtype="float64").compute())  # <- here


def good(client: Client) -> float:
    corners = list(product(*(range(0, length, BLOCK) for length in SHAPE)))
    futures = client.map(mass_of_block, [scan()] * len(corners), corners)
    return float(sum(client.gather(futures)))
