"""A memory-mapped file is given to from_array.

source: dask/dask issue 7355 (also 4169, 3946)
date:   2021-03-24
seen:   taking one pixel of every frame out of a large raw file took 2.6 s by from_array of its mapping, and 0.09 s
        where tasks map the file themselves.
cause:  from_array reads the whole file in the client, to hash it for a name; with a client, all of it is then part of
        the graph, goes through the scheduler to a worker, and from there to the others.
cure:   let each task map the file and take its part of it (or, on threads, name=False).

The three files are sparse, so they use next to no disk.
"""

from __future__ import annotations

from pathlib import Path

import dask
import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
BLOCK = 100
FRAMES = BLOCK * scaled(7)
SHAPE = (FRAMES, 256, 128)
DETECTORS = ("left", "right", "top")

EXPECTED = Expected(
    cause="the whole file is in the graph: hashed, pickled and sent by the client",
    place="the from_array() of the mapped file, or the compute() of its graph",
    cure="let each task map the file",
    says=r"graph.*\b(MB|MiB|GB|GiB|bytes|large|big|data)\b|\b(MB|MiB|GB|GiB|bytes|large|big|data)\b.*graph"
    r"|hash|tokeniz|\barrays? in the graph",
    places=marked(__file__),
    cures=r"(read|load|open|map|make)\w* .*(in|by|inside) (the |each |every |a )?tasks?|tasks? (read|load|open|map)"
    r"|from_delayed|name=False|scatter",
    never={
        COMPUTED_AGAIN: "each of the three computations has another file",
        LONGER_TASKS: "the graph is large in bytes, and has few tasks",
    },
)


def path_of(detector: str) -> Path:
    return folder("memmap") / f"{detector}.raw"


def prepare() -> None:
    for number, detector in enumerate(DETECTORS, 1):
        raw = np.memmap(path_of(detector), dtype="f8", mode="w+", shape=SHAPE)
        raw[::50, 128, 64] = number
        raw.flush()


def mapped(path: Path) -> np.ndarray:
    return np.memmap(path, dtype="f8", mode="r", shape=SHAPE)


def frames(path: Path, first: int, last: int) -> np.ndarray:
    return mapped(path)[first:last]


def bad(client: Client) -> float:
    brightness = 0.0
    for detector in DETECTORS:
        stack = da.from_array(mapped(path_of(detector)), chunks=(BLOCK, -1, -1))  # <- here
        brightness += float(stack[:, 128, 64].compute().sum())  # <- here
    return brightness


def good(client: Client) -> float:
    brightness = 0.0
    for detector in DETECTORS:
        blocks = [
            da.from_delayed(
                dask.delayed(frames)(path_of(detector), first, first + BLOCK), shape=(BLOCK, *SHAPE[1:]), dtype="f8"
            )
            for first in range(0, FRAMES, BLOCK)
        ]
        brightness += float(da.concatenate(blocks)[:, 128, 64].compute().sum())
    return brightness
