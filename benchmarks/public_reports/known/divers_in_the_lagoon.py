"""Salinity at the depth of a diver, who is at another depth each minute, from profiles at many places.

source: pydata/xarray issue 10683
date:   2025-09-02
seen:   interp() of a cube of three dimensions at a height that depends on time became 76 times slower in 2025.
cause:  since the target shares a dimension with the data, each profile is interpolated by a call of its own, in a loop
        in Python: as many calls as there are times and places.
cure:   interpolate all profiles of a block at once, by a few operations on whole arrays.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "scipy")
CLUSTER = TWO_BY_TWO
MINUTES = scaled(480)
PLACES = 80
DEPTHS = 65

EXPECTED = Expected(
    cause="interp() interpolates each profile by a call of its own, in a Python loop (vectorize) that holds the GIL",
    place="the interp() at the diver's depth",
    cure="interpolate whole arrays at once by NumPy operations, in place of a loop over profiles",
    says=r"vectori[sz]|python (loop|code|function)|loops? (in|of) python|pure python|(?<!event )\bloop\w*"
    r"|(each|every|per) (profile|element|row|cell)"
    r"|one (call|by one)|many calls|calls? .{0,40}times|interp|\bGIL\b",
    places=(*marked(__file__), function("at_depth"), r"\binterp\b", r"interp1d|vectorize|_interp"),
    cures=r"vectori[sz]|numpy|whole (array|block|chunk)s?|at once|array operations|numba|compile"
    r"|outside (of )?(the )?loop"
    r"|fewer calls|releas\w+ the GIL|processes",
    never={
        LOCK: "nothing waits for a lock of the program",
        LONGER_TASKS: "tasks take most of a second each",
        MORE_MEMORY: "the data are a few megabytes",
        r"(?i)pickl\w+ (is|was|takes)": "hardly anything is moved",
    },
)


def salinity() -> xr.DataArray:
    values = da.random.default_rng(5).normal(35, 1, (MINUTES, PLACES, DEPTHS), chunks=(MINUTES // 12, -1, -1))
    coords = {"minute": np.arange(MINUTES), "depth": np.linspace(0, 32, DEPTHS)}
    return xr.DataArray(values, dims=("minute", "place", "depth"), coords=coords)


def dive() -> xr.DataArray:
    depths = 16 + 15 * np.sin(np.arange(MINUTES) / 30)
    return xr.DataArray(depths, dims="minute", coords={"minute": np.arange(MINUTES)})


def at_depth(profiles: xr.DataArray, depth: xr.DataArray) -> xr.DataArray:
    return profiles.interp(depth=depth)  # <- here


def between_levels(profiles: np.ndarray, depth: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Linear interpolation of all profiles at once."""
    below = np.clip(np.searchsorted(levels, depth), 1, len(levels) - 1)
    share = (depth - levels[below - 1]) / (levels[below] - levels[below - 1])
    rows = np.arange(len(depth))
    upper, lower = profiles[rows, :, below - 1], profiles[rows, :, below]
    return upper + (lower - upper) * share[:, None]


def bad(client: Client) -> float:
    return float((at_depth(salinity(), dive()) ** 2).mean().compute())  # <- here


def good(client: Client) -> float:
    cube = salinity()
    depth = da.from_array(dive().values, chunks=MINUTES // 12)
    levels = cube["depth"].values
    found = da.blockwise(
        between_levels, "tp", cube.data, "tpz", depth, "t", levels, None, dtype=float, concatenate=True
    )
    return float((found**2).mean().compute())
