"""Soil moisture on the plots of a field: from each plot's series, an index of how dry its driest weeks were.

source: pydata/xarray issue 2499
date:   2018-10-20
seen:   a function is applied to the series at each point of a grid (stacked, then groupby and apply); as soon as the
        dataset has chunks, it takes very many times as long as without.
cause:  the function takes the values of one point at a time, so that each point is a computation on the cluster by
        itself, with its graph, its messages and the reading of a chunk for one series.
cure:   apply the function to whole chunks (apply_ufunc with dask="parallelized", map_blocks), in one computation.
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
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "pandas")
CLUSTER = TWO_BY_ONE
WEEKS, SOUTH_NORTH, EAST_WEST = 400, scaled(20), 20

EXPECTED = Expected(
    cause="each plot is a computation of its own, started by .values in the function that groupby calls for it, and"
    " computes its whole chunk",
    place="the line with groupby('plot').map in bad; the .values in of_plot",
    cure="apply_ufunc or map_blocks on whole chunks, in one computation",
    says=r"(each|every|per|single|one|many|separate|small|\d+) (\w+ )?(comput|plot|point|group|series|call)\w*|one"
    r" (by one|at a time|after)|in turn|\.values"
    r"|group.?by|loop|(again|anew|twice|times over|repeated|re-?comput)\w*|(small|short|tiny) tasks|overhead|in"
    r" the client|graph"
    r"|client (is|was|spen|takes|work)|workers?.{0,30}(wait|idle|nothing)|main (program|thread)|your (script"
    r"|program)",
    places=(*marked(__file__), function("of_plot"), function("bad"), function("moisture"), r"group.?by"),
    cures=r"apply_ufunc|map_blocks|one (computation|compute|go)|dask\.compute|once\b|together|whole (chunk|block"
    r"|array)|\bload\b|persist|vectori[sz]"
    r"|single comput|all (plots|points|groups|at)|at once|batch|larger|longer|fewer|in (the )?tasks|on the workers",
    never={
        MORE_WORKERS: "those that there are have little to do",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def row_of_plots(block_info: dict | None = None) -> np.ndarray:
    """Moisture in a row of plots."""
    assert block_info is not None
    rng = np.random.default_rng([13, block_info[None]["chunk-location"][1]])
    return rng.gamma(3, 1, (WEEKS, 1, EAST_WEST))


def moisture() -> xr.DataArray:
    chunks = ((WEEKS,), (1,) * SOUTH_NORTH, (EAST_WEST,))
    data = da.map_blocks(row_of_plots, chunks=chunks, dtype=float, meta=np.empty((0, 0, 0)))
    return xr.DataArray(data, dims=("week", "y", "x"))


def dryness(series: np.ndarray) -> np.ndarray:
    """Mean of the driest twentieth, in deviations from the mean of the plot."""
    driest = np.sort(series)[: len(series) // 20]
    return (driest.mean() - series.mean()) / series.std()


def of_plot(plot: xr.DataArray) -> xr.DataArray:
    return xr.DataArray(dryness(plot.values.squeeze()))  # <- here


def bad(client: Client) -> float:
    plots = moisture().stack(plot=("y", "x"))
    return float(plots.groupby("plot").map(of_plot).sum())  # <- here


def good(client: Client) -> float:
    index = xr.apply_ufunc(
        dryness,
        moisture(),
        input_core_dims=[["week"]],
        vectorize=True,
        dask="parallelized",
        output_dtypes=[float],
    )
    return float(index.sum().compute())
