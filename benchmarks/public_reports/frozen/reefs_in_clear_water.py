"""Pixels of reefs are kept where the water is clear, as found by a filter of the images.

source: pydata/xarray issue 7516
date:   2023-02-08
seen:   selecting with where(..., drop=True) on a condition of Dask got six times slower, and the dashboard shows the
        same tasks again and again.
cause:  dropping needs the condition's values to know what is left: it is computed for each dimension on the spot, and
        again in the result, since the condition is lazy.
cure:   compute (or persist) the condition once, before where().
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client
from scipy.ndimage import gaussian_filter

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "scipy")
CLUSTER = TWO_BY_TWO
SIDE = 1_500
DAYS = scaled(16)

EXPECTED = Expected(
    cause="the condition is lazy, and computed again for each dimension and for the result",
    place="the where() that drops, or the condition",
    cure="compute or persist the condition once before where()",
    says=r"(comput|evaluat|calculat|ran|run|repeat|execut)\w* .{0,40}(again|twice|times|repeatedly|more than once)"
    r"|recomput|same (tasks?|work|condition)|repeat|\d times",
    places=(*marked(__file__), function("is_clear"), function("clearness"), r"\bwhere\b"),
    cures=r"persist|\bcompute\b.{0,40}(once|first|before|together)|once|keep|load|cache|together",
    never={
        LONGER_TASKS: "tasks of half a second are long enough",
        HOLDS_GIL: "filters release it",
        LOCK: "no task waits for a lock",
        MORE_WORKERS: "all cores are busy",
    },
)


def clearness(image: np.ndarray) -> np.ndarray:
    """Share of blue light, smoothed."""
    return gaussian_filter(image, (0, 6, 6), truncate=6) - gaussian_filter(image, (0, 3, 3), truncate=6)


def images() -> xr.Dataset:
    light = da.random.default_rng(21).random((DAYS, SIDE, SIDE), chunks=(1, SIDE, SIDE))
    height = np.linspace(0, 1, SIDE)
    return xr.Dataset({"light": (("day", "y", "x"), light)}, coords={"day": np.arange(DAYS), "y": height, "x": height})


def is_clear(reefs: xr.Dataset) -> xr.DataArray:
    return xr.apply_ufunc(clearness, reefs["light"], dask="parallelized", output_dtypes=[float]) > 0.01


def light_of_clear(reefs: xr.Dataset, clear: xr.DataArray) -> float:
    return float(reefs.where(clear, drop=True)["light"].mean().compute())  # <- here


def bad(client: Client) -> float:
    reefs = images()
    return light_of_clear(reefs, is_clear(reefs))  # <- here


def good(client: Client) -> float:
    reefs = images()
    return light_of_clear(reefs, is_clear(reefs).compute())
