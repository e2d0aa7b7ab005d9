"""Plankton in the scans of a towed camera, brought to common depths.

source: pydata/xarray issue 3762
date:   2020-02-07
seen:   each scan of an instrument was interpolated to the same depths by groupby over time and map: in chunks with Dask
        each took more than ten times as long as without, and one core was a tenth busy.
cause:  groupby and map call the function on the client for each scan in turn, which makes a lazy interpolation of its
        own, and a graph out of all these: the client is busy with thousands of small steps.
cure:   apply_ufunc, vectorised, with dask="parallelized": one task for many scans.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
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

NEEDS = ("xarray", "scipy")
CLUSTER = TWO_BY_TWO
SCANS = scaled(230)
LEVELS = 200
WANTED = np.linspace(2.0, 60.0, 80)

EXPECTED = Expected(
    cause="groupby and map make a lazy interpolation for each scan on the client, one by one, and a huge graph",
    place="the line of groupby and map, the function it calls, or the line of compute",
    cure="apply_ufunc(dask='parallelized') on chunks of many scans (or map_blocks)",
    says=r"\bgraphs?\b|(client|script).{0,60}(busy|build|prepar|before)|before (any|the first)|groupby"
    r"|(too many|small|tiny|short).{0,20}(tasks|chunks)|(build|optimi[sz])\w* (the |a )?(graph|expression|collection)",
    places=(*marked(__file__), function("at_wanted_depths")),
    cures=r"apply_ufunc|map_blocks|vectori[sz]|(larger|bigger|fewer|longer) (chunks|tasks|graph)|smaller graph"
    r"|many .{0,20}(in|per|at) (one|once|a)|\bat once\b|fewer|batch",
    never={
        COMPUTED_AGAIN: "each scan is interpolated once",
        LOCK: "no lock is used",
        MORE_MEMORY: "memory is not short",
        MORE_WORKERS: "the workers have next to nothing to do",
    },
)


def scans() -> xr.Dataset:
    """Counts at the camera's own depths, other ones in each scan."""
    rng = np.random.default_rng(3)
    depths = np.sort(rng.random((SCANS, LEVELS)) * 70.0, axis=1)
    counts = 10 + 5 * np.sin(depths / 9) + rng.random((SCANS, LEVELS))
    return xr.Dataset(
        {"count": (("time", "level"), counts), "depth": (("time", "level"), depths)},
        coords={"time": np.arange(SCANS)},
    )


def at_wanted_depths(scan: xr.Dataset) -> xr.DataArray:
    scan = scan.squeeze("time")
    counts = scan["count"].assign_coords(level=scan["depth"].values)
    return counts.interp(level=WANTED, kwargs={"fill_value": "extrapolate"})  # <- here


def interpolated(counts: np.ndarray, depths: np.ndarray) -> np.ndarray:
    return np.interp(WANTED, depths, counts)


def bad(client: Client) -> float:
    chunked = scans().chunk({"time": 1, "level": -1})
    regular = chunked.groupby("time").map(at_wanted_depths)  # <- here
    return float(regular.mean().compute())  # <- here


def good(client: Client) -> float:
    chunked = scans().chunk({"time": 100, "level": -1})
    regular = xr.apply_ufunc(
        interpolated,
        chunked["count"],
        chunked["depth"],
        input_core_dims=[["level"], ["level"]],
        output_core_dims=[["wanted"]],
        vectorize=True,
        dask="parallelized",
        output_dtypes=["f8"],
        dask_gufunc_kwargs={"output_sizes": {"wanted": len(WANTED)}},
    )
    return float(regular.mean().compute())
