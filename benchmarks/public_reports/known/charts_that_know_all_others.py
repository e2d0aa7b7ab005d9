"""Each block of a stack of old sea charts is read by an object that also knows the whole catalogue.

source: DKISTDC/dkist pull request 455
date:   2024-10-26
seen:   a sum over an array of many files takes longer with eight processes of Dask than in a loop, and many times
        longer than with multiprocessing; tasks are short, and between them there is much empty space.
cause:  the object that reads a file has a reference to the container of all files: the container is pickled and
        unpickled with each of the tasks.
cure:   keep in the object only what it needs to read its own file.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CHARTS = scaled(550)
SIDE = 128
NOTES = 30

EXPECTED = Expected(
    cause="each task carries its own pickled copy of the whole catalogue: packing, sending and unpacking that is"
    " most of the"
    " time of tasks that read a small file",
    place="Reader (its catalogue), the from_array() in stacked, or the compute()",
    cure="a reader without the reference to the catalogue",
    says=r"pickl|serializ|\bgraph\b|\bsen[dt]\b|sending|transfer|travel|large object|argument|scheduler|unpack"
    r"|loads?\b.{0,30}"
    r"\btasks?|size of (the )?tasks?",
    places=(*marked(__file__), function("Reader"), function("stacked"), function("bad"), function("getter")),
    cures=r"reference|smaller|only what|less\b|(without|not) (the |hold|keep|carry|send|pass|tak)|slim|scatter|once"
    r"|(in|on) (the |"
    r"each )?(tasks?|workers?)|path|__getstate__|__reduce__|leave out|fewer objects",
    never={
        MORE_WORKERS: "these wait for what is sent",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each block is read once",
    },
)


def path_of(number: int) -> Path:
    return folder("charts") / f"chart-{number:04d}.npy"


def prepare() -> None:
    depths = np.random.default_rng(1).gamma(3.0, 8.0, (SIDE, SIDE))
    for number in range(CHARTS):
        np.save(path_of(number), depths + number)


@functools.cache
def catalogue() -> dict[str, dict[str, Any]]:
    """What is known of each chart."""
    return {
        str(path_of(number)): {
            f"note {note} on chart {number}": (number, note, f"shelf {number * note}") for note in range(NOTES)
        }
        for number in range(CHARTS)
    }


class Reader:
    """Array in a file, read when it is indexed."""

    shape, dtype, ndim = (1, SIDE, SIDE), np.dtype("f8"), 3

    def __init__(self, path: str, known: dict[str, dict[str, Any]] | None) -> None:
        self.path = path
        self.known = known  # <- here

    def __getitem__(self, index: Any) -> np.ndarray:
        depths: np.ndarray = np.load(self.path)[None][index]
        return depths


def stacked(known: dict[str, dict[str, Any]] | None) -> da.Array:
    paths = [str(path_of(number)) for number in range(CHARTS)]
    blocks = [
        da.from_array(Reader(path, known), chunks=-1, name=f"chart-{path}-{known is None}") for path in paths
    ]  # <- here
    stack: da.Array = da.concatenate(blocks)
    return stack


def bad(client: Client) -> float:
    return float(stacked(catalogue()).sum(axis=(1, 2)).max().compute())  # <- here


def good(client: Client) -> float:
    return float(stacked(None).sum(axis=(1, 2)).max().compute())
