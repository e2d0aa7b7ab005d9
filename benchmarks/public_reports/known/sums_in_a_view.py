"""Sums over a long moving window are made from a view of the array that has each value once for each window.

source: pydata/xarray issue 9550, and issues 3332 and 3165; its cure: Ouranosinc/xclim pull request 311
date:   2024-09-26 (the others 2019-09-22 and 2019-07; cure 2019-11-26)
seen:   means and sums over moving windows of a chunked array need many times the memory of the array, kill workers and
        take very long, the more the longer the window.
cause:  the window becomes a further dimension of the array. For the sum, which has to leave out gaps, all of that is
        written out, so the memory and work are those of the array times the length of the window.
cure:   the pull request: take the difference of two cumulative sums, which needs no window at all.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray",)
CLUSTER = TWO_BY_ONE
DAYS = 2_000
STATIONS = scaled(480)
WINDOW = 180

EXPECTED = Expected(
    cause="the tasks of the moving sum work on an array that is as much larger than the data as the window is long",
    place="the line with rolling(), or the function of xarray or numpy that makes the sum of the windows",
    cure="do not build the windows: differences of cumulative sums (or a library that moves the window, as bottleneck)",
    says=r"window|rolling|\bcop(y|ies|ied)\b|times (as much|the (memory|data|size|work))"
    r"|memory (of|in|for) (the )?tasks?"
    r"|(temporary|intermediate|large|larger|big) (arrays?|results?|memory)|much memory|nansum|sliding",
    places=(
        *marked(__file__),
        function("rolling"),
        function("construct"),
        function("nansum"),
        function("sliding_window_view"),
    ),
    cures=r"cumulative|cumsum|bottleneck|numbagg|map_overlap|without (the )?(window|copy|view)"
    r"|(another|other|faster|better|cheaper) (algorithm|function|way|method)"
    r"|(smaller|fewer) (windows?|copies)|algorithm",
    never={
        LONGER_TASKS: "the tasks are long, and bigger chunks need more memory",
        MORE_MEMORY: "the memory is for copies that nobody needs",
        MORE_WORKERS: "all are busy with work that is not needed",
    },
)


def rain() -> xr.DataArray:
    """Whole numbers, so that sums are the same in any order."""
    values = da.random.default_rng(7).integers(0, 40, (DAYS, STATIONS), chunks=(DAYS, 40)).astype(np.float64)
    return xr.DataArray(values, dims=("day", "station"))


def bad(client: Client) -> float:
    sums = rain().rolling(day=WINDOW).sum()  # <- here
    return float(sums.max("day").sum().compute())  # <- here


def good(client: Client) -> float:
    until = rain().cumsum("day")
    sums = (until - until.shift(day=WINDOW, fill_value=0)).isel(day=slice(WINDOW - 1, None))
    return float(sums.max("day").sum().compute())
