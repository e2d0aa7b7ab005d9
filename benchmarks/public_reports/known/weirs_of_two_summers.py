"""Hourly sums of a gauge at a weir that was read in two summers, with long months between them.

source: dask/dask issue 11693
date:   2025-01-23
seen:   resampling a chunked series to hours took milliseconds without Dask and more than half a second with it, as
        soon as there was a long gap in the middle of the series. Without the gap, Dask costs a factor of two.
cause:  the result has an hour for each hour of the gap too, and each of these empty hours gets tasks of its own.
cure:   resample each stretch without a gap by itself, and put the results together.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray",)
CLUSTER = TWO_BY_TWO
DAYS = 6
APART = scaled(70)
POINTS = 40

EXPECTED = Expected(
    cause="many small tasks: each hour of the long gap is an empty group with tasks of its own",
    place="the resample() over both summers",
    cure="resample each summer by itself, so that there are fewer groups and fewer tasks",
    says=r"tasks? (are|were|is|was)? ?(too )?(small|short|tiny)|too many tasks|overhead|\bgaps?\b|empty"
    r"|(many|tiny|small|short) (short |small |tiny )?(tasks|groups|pieces|chunks|hours|bins)"
    r"|(large|big|huge|long) graph|graph (is|was|of|has|takes|took)|scheduler (is|was) busy"
    r"|building (the|a|its) graph",
    places=(*marked(__file__), function("hourly"), r"\bresample\b"),
    cures=r"(fewer|larger|longer|bigger|coarser) (and (fewer|larger|longer|bigger) )?(tasks|groups|pieces|chunks|bins)"
    r"|split|each (stretch|part|summer|period)|gap|empty|map_blocks|(smaller|simpler) graph|one task|drop",
    never={
        COMPUTED_AGAIN: "the sums are computed once",
        HOLDS_GIL: "tasks do nearly nothing",
        MORE_WORKERS: "it is the number of tasks that takes the time, which more workers do not change",
        MORE_MEMORY: "the data are a few megabytes",
    },
)


def summer_of(number: int) -> xr.DataArray:
    """Levels of each ten minutes at some points, in one summer."""
    times = pd.date_range(
        pd.Timestamp("2021-06-01") + pd.Timedelta(days=number * APART), periods=DAYS * 144, freq="10min"
    )
    levels = np.random.default_rng(number).gamma(2.0, 1.0, (len(times), POINTS))
    return xr.DataArray(levels, dims=("time", "point"), coords={"time": times})


def hourly(levels: xr.DataArray) -> xr.DataArray:
    return levels.chunk(time=144).resample(time="1h").sum()  # <- here


def strength(sums: xr.DataArray) -> float:
    return float((sums**2).sum().compute())


def bad(client: Client) -> float:
    both = xr.concat([summer_of(0), summer_of(1)], dim="time")
    return strength(hourly(both))  # <- here


def good(client: Client) -> float:
    return strength(xr.concat([hourly(summer_of(0)), hourly(summer_of(1))], dim="time"))
