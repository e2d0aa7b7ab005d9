"""Codes of rocks on a geological map are replaced by densities, one code after the other.

source: pydata/xarray issue 2568
date:   2018-11-24
seen:   there is no method that maps values of an array to others; people replace one value at a time with where(), for
        more and more values.
cause:  each replacement goes through the whole array, twice: it compares and it chooses.
cure:   one look-up in a table with all codes, in a function that is applied to each block.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client
from numpy.typing import NDArray

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
SHEETS, SIDE = 24, scaled(1_400)
#: Density of each rock, by code.
DENSITIES = 1.5 + (np.arange(120) * 37 % 120) / 60

EXPECTED = Expected(
    cause="the whole array is compared and rewritten once for each code",
    place="the where() in the loop, or the compute() of its result",
    cure="one look-up table for all codes, applied to each block",
    says=r"where\(|[`'\"]where|(in|of|by|calls?|calling|numpy|dask|np|da)[ .]where\b|\bwhere\b.{0,20}(tasks?|layers?"
    r"|operations?|calls?)\b|(each|every|one) (code|value|class|condition)|pass(es)? (over|through)|(whole|full"
    r"|entire) (array|block|chunk)"
    r"|again and again|chain|(many|120|\d\d+) (operations|elementwise|steps|layers|replacements|calls)|element-?wise"
    r"|compar|\beq\b",
    places=(*marked(__file__), function("bad"), function("densities_one_by_one"), r"dask[/.]array"),
    cures=r"look.?up|table|take|index|map_blocks|searchsorted|select|digitize|one pass|at once|single (pass|step"
    r"|function)"
    r"|fewer (passes|operations|steps|layers|calls)|in one (go|step|function)|vectori[sz]|once|loop",
    never={
        MORE_MEMORY: "blocks are small",
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
    },
)


def rocks(number: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Codes of a sheet of the map."""
    rng = np.random.default_rng(int(number.flat[0]))
    return rng.integers(0, len(DENSITIES), (SIDE, SIDE), dtype=np.uint8)


def geological_map() -> da.Array:
    numbers = da.arange(SHEETS, chunks=1)[:, None]
    chunks = ((SIDE,) * SHEETS, (SIDE,))
    codes: da.Array = da.map_blocks(rocks, numbers, chunks=chunks, dtype=np.uint8, meta=np.empty((0, 0), np.uint8))
    return codes


def densities_one_by_one(codes: da.Array) -> da.Array:
    densities: da.Array = da.zeros_like(codes, dtype=float)
    for code, density in enumerate(DENSITIES.tolist()):
        densities = da.where(codes == code, density, densities)  # <- here
    return densities


def densities_of(codes: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Densities of a block."""
    return DENSITIES[codes]


def bad(client: Client) -> float:
    return float(densities_one_by_one(geological_map()).mean().compute())  # <- here


def good(client: Client) -> float:
    densities = da.map_blocks(densities_of, geological_map(), dtype=float, meta=np.empty((0, 0)))
    return float(densities.mean().compute())
