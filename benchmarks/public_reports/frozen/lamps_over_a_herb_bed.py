"""A bed of herbs under lamps, photographed in fields whose light falls off to the rims.

source: fractal-analytics-platform/fractal-client issue 131
date:   2022-08-05
seen:   the light of each field of view was corrected in place, one region of a lazy array after another; memory and
        time grew much faster than the number of fields.
cause:  each assignment to a region of a Dask array makes a new array with a task for each of all its chunks: the graph
        grows with the square of the number of regions.
cure:   map_blocks over chunks that are the regions.
"""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
FIELDS = max(2, scaled(19))
SIDE = 160

EXPECTED = Expected(
    cause="each assignment to a region adds a layer over all chunks: the client makes a huge graph",
    place="the line that assigns, or that which computes",
    cure="map_blocks (or da.block of the corrected fields)",
    says=r"\bgraphs?\b|(client|script).{0,60}(busy|build|prepar|before)|before (any|the first)|assign\w*|setitem"
    r"|(build|optimi[sz])\w* (the |a )?(graph|expression|collection)",
    places=(*marked(__file__), function("correct_in_place")),
    cures=r"map_blocks|da\.block|map_overlap|concatenate|at once|\bonce\b|fewer|smaller graph|outside (of )?the loop"
    r"|without (the |a )?(assign|loop)",
    never={
        COMPUTED_AGAIN: "each field is corrected once",
        MORE_WORKERS: "the workers have little to do",
    },
)


def photograph() -> da.Array:
    """All fields side by side, a chunk for each."""
    side = FIELDS * SIDE
    return da.random.default_rng(31).integers(100, 4000, (side, side), chunks=SIDE, dtype="uint16")


def falloff() -> np.ndarray:
    """How much of the light of a lamp reaches a point of its field."""
    row, column = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    return 1 - 0.3 * (row**2 + column**2) / 2


def corrected(field: np.ndarray) -> np.ndarray:
    return np.clip(field / falloff(), 0, 65535).astype("uint16")


def correct_in_place(picture: da.Array) -> da.Array:
    correct = dask.delayed(corrected)
    for row in range(0, picture.shape[0], SIDE):
        for column in range(0, picture.shape[1], SIDE):
            region = slice(row, row + SIDE), slice(column, column + SIDE)
            field = da.from_delayed(correct(picture[region]), shape=(SIDE, SIDE), dtype="uint16")
            picture[region] = field  # <- here
    return picture


def bad(client: Client) -> float:
    picture = correct_in_place(photograph())  # <- here
    return float(picture.mean().compute())  # <- here


def good(client: Client) -> float:
    picture = photograph().map_blocks(corrected, dtype="uint16")
    return float(picture.mean().compute())
