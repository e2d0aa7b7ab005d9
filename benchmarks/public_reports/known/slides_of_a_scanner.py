"""Slides of a scanner, each a file of raw pixels, become one array; its brightest spots are looked for.

source: dask/dask issue 7161
date:   2021-02-03
seen:   da.stack of ten thousand memory-mapped planes took two minutes, and as much memory as the whole data of 20 GB,
        before anything was computed.
cause:  a memory map is an array of NumPy to Dask: to name it, all its bytes are read and hashed, and then the planes
        travel in the graph from the client to the workers.
cure:   let tasks open the files: map_blocks (or delayed) over names of files.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
SLIDES = scaled(160)
SIDE = 1_400

EXPECTED = Expected(
    cause="all pixels are read and hashed by the client and sent in the graph to the workers",
    place="the stack of memory maps",
    cure="open the files within the tasks: map_blocks or delayed over the names of files",
    says=r"pickl|serializ|\bcarr(y|ies|ied)\b|embed|hash(es|ed|ing)|tokeni[sz]|in (the|its) graph|(large|big) graph"
    r"|graph (is|of|has|was) .{0,20}\d|\b(large|big|heavy|\d+ [kMG]i?B)\b.{0,50}\b(tasks?|objects?|graph|arrays?)\b"
    r"|client .{0,40}(reads|sends|sent|loads|busy)|sen[dt]s?\b.{0,40}(graph|scheduler|workers)|memory.?map",
    places=(*marked(__file__), function("stacked"), function("mapped"), r"\b(stack|from_array|asarray)\b"),
    cures=r"(read|open|load)\w* .{0,40}(tasks?|workers?)|map_blocks|delayed|(names?|paths?) of (the )?files?"
    r"|file ?names?|paths"
    r"|from_delayed|in (the|each|its) tasks?|scatter|name=False",
    never={
        LONGER_TASKS: "it is the bytes that take the time",
        COMPUTED_AGAIN: "nothing is computed twice",
        MORE_WORKERS: "the client is busy, not the workers",
        MORE_MEMORY: "the data would fit",
    },
)


def path_of(slide: int) -> str:
    return str(folder("slides_of_a_scanner") / f"slide-{slide:04d}.raw")


def prepare() -> None:
    for slide in range(SLIDES):
        np.random.default_rng(slide).integers(0, 60_000, (SIDE, SIDE), dtype="u2").tofile(path_of(slide))


def mapped(slide: int) -> np.ndarray:
    return np.memmap(path_of(slide), dtype="u2", mode="r", shape=(SIDE, SIDE))


def stacked() -> da.Array:
    return da.stack([da.from_array(mapped(slide), chunks=-1) for slide in range(SLIDES)])  # <- here


def read_slide(block: np.ndarray) -> np.ndarray:
    """Slides of these numbers."""
    return np.stack([np.fromfile(path_of(int(slide)), dtype="u2").reshape(SIDE, SIDE) for slide in block.ravel()])


def brightest(slides: da.Array) -> float:
    return float((slides.max(axis=2).astype(float).mean()).compute())


def bad(client: Client) -> float:
    return brightest(stacked())  # <- here


def good(client: Client) -> float:
    numbers = da.arange(SLIDES, chunks=1)
    chunks = ((1,) * SLIDES, (SIDE,), (SIDE,))
    return brightest(numbers.map_blocks(read_slide, chunks=chunks, new_axis=[1, 2], dtype="u2"))
