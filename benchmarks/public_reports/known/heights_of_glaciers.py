"""Melting of a glacier is summed over years; each year has the heights of its surface as a coordinate.

source: pydata/xarray issue 9481; of the same kind: pydata/xarray issues 3068 and 3454
date:   2024-09-11
seen:   arithmetic on two lazy datasets with lazy coordinates reads the data of the coordinates, though nothing was
        computed yet; with large ones a sum takes long before its compute().
cause:  xarray compares coordinates by their values whenever two arrays are combined, and computes lazy ones for that,
        one operation after the other.
cure:   drop such coordinates before the arithmetic or make them variables, or load them once if they are the same.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray",)
CLUSTER = TWO_BY_ONE
YEARS, STRIPS, WIDTH = scaled(7), 4, 200
EMPTY = np.empty((0, 0))

EXPECTED = Expected(
    cause="each addition compares the coordinates of its two sides, and computes the heights for that",
    place="the addition in melting, or heights_of_strip, which is computed by it",
    cure="drop the coordinate (drop_vars, reset_coords) before the arithmetic",
    says=r"coord\w*|compar\w*|equal|merg\w*|align\w*|implicit|hidden|eager|unintended|(each|every|per|\d+) (addition"
    r"|operation|sum|computation|compute)|many (small )?comput\w*|\d+ computations|one (computation|operation) after"
    r"|in turn|one (at a time|by one|after)|before (the )?compute|separate(ly)? comput\w*",
    places=(*marked(__file__), function("melting"), function("heights_of_strip"), function("year_of_glacier")),
    cures=r"drop|reset_coords|without (the )?coord|coord|variable|load\b|together|one (compute"
    r"|computation)|single compute|override|minimal|compat|reuse",
    never={
        MORE_WORKERS: "they would compute what nobody needs",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
    },
)


def heights_of_strip(strip: np.ndarray, survey: int) -> np.ndarray:
    """Heights of a strip of the surface, from two pictures of a survey; they are the same each year."""
    compute_for(0.4)
    return np.full((WIDTH, WIDTH), 2000.0 + strip[0])


def melt_of_strip(strip: np.ndarray, year: int) -> np.ndarray:
    melt: np.ndarray = np.sin(np.arange(WIDTH * WIDTH).reshape(WIDTH, WIDTH) * (year + 1) + strip[0]) + 1.5
    return melt


def year_of_glacier(year: int) -> xr.DataArray:
    strips = da.arange(STRIPS, chunks=1)
    chunks = ((WIDTH,) * STRIPS, (WIDTH,))
    heights = strips.map_blocks(heights_of_strip, year, chunks=chunks, new_axis=1, meta=EMPTY)
    melt = strips.map_blocks(melt_of_strip, year, chunks=chunks, new_axis=1, meta=EMPTY)
    return xr.DataArray(melt, dims=("y", "x"), coords={"height": (("y", "x"), heights)})


def melting(years: list[xr.DataArray]) -> xr.DataArray:
    total = years[0]
    for year in years[1:]:
        total = total + year  # <- here
    return total


def bad(client: Client) -> float:
    years = [year_of_glacier(year) for year in range(YEARS)]
    return float(melting(years).sum().compute())  # <- here


def good(client: Client) -> float:
    years = [year_of_glacier(year).drop_vars("height") for year in range(YEARS)]
    return float(melting(years).sum().compute())
