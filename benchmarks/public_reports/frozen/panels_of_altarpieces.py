"""Panels of altarpieces, photographed for a conservator who looks at some of them.

source: dask/dask-image issue 161
date:   2020-10-21
seen:   an array made of thousands of picture files, by stacking a small lazy array for each, took long to be made, and
        each use of a part of it as well; made with map_blocks it took a fraction.
cause:  each file is a lazy array with a graph of its own: the client's time goes into making and merging thousands.
cure:   one array, made with map_blocks.
"""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
PANELS = scaled(11_500)
SHAPE = (60, 80)
VISITS = 6

EXPECTED = Expected(
    cause="the client spends its time making and merging the graphs of thousands of stacked lazy arrays",
    place="the lines of from_delayed and stack, or that of compute",
    cure="one array by map_blocks",
    says=r"\bgraphs?\b|(client|script).{0,60}(busy|build|prepar|before)|before (any|the first)|from_delayed"
    r"|\.stack|\bstack(ing|ed)"
    r"|(build|optimi[sz])\w* (the |a )?(graph|expression|collection)",
    places=(*marked(__file__), function("stacked")),
    cures=r"map_blocks|one array|from_map|\bonce\b|at once|fewer|smaller graph|larger|(avoid|without|no) .{0,30}stack",
    never={
        LOCK: "no lock is used",
        MORE_MEMORY: "memory is not short",
        MORE_WORKERS: "the workers have next to nothing to do",
        COMPUTED_AGAIN: "each panel that is looked at is read once",
    },
)


def photograph(panel: int) -> np.ndarray:
    """Read the picture of a panel, as a camera would have left it."""
    rows, columns = np.indices(SHAPE)
    return np.sin(rows * (panel % 7 + 1) / 9) * np.cos(columns / (panel % 5 + 3)) + panel % 11


def photographed(block_id=None) -> np.ndarray:
    return photograph(block_id[0])[None]


def stacked() -> da.Array:
    read = dask.delayed(photograph, pure=True)
    pictures = [da.from_delayed(read(panel), shape=SHAPE, dtype="f8") for panel in range(PANELS)]  # <- here
    return da.stack(pictures)  # <- here


def mapped() -> da.Array:
    return da.map_blocks(
        photographed, chunks=((1,) * PANELS, SHAPE[:1], SHAPE[1:]), dtype="f8", meta=np.empty((0, 0, 0))
    )


def visits(pictures: da.Array) -> float:
    """Brightness of the panels which the conservator looks at."""
    step = max(1, PANELS // 40)
    return sum(float(pictures[visit::step].mean().compute()) for visit in range(VISITS))  # <- here


def bad(client: Client) -> float:
    return visits(stacked())


def good(client: Client) -> float:
    return visits(mapped())
