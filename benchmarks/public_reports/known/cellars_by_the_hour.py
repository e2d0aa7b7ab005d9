"""Temperatures of wine cellars, logged each ten minutes, are averaged to hours.

source: pydata/xarray issue 4498
date:   2020-10-09
seen:   resampling ten-minute values to hours is a hundred times slower than in pandas, and slower the shorter the new
        period is: days take less time than hours, while pandas takes the same time for both.
cause:  each period is a group that is cut out and averaged by itself, so that the number of groups rules: of a chunked
        array, each hour gets tasks of its own.
cure:   the values are regular: coarsen() averages six at a time within each chunk, without groups.
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
DAYS = scaled(90)
CELLARS = 60

EXPECTED = Expected(
    cause="too many small tasks: each hour is a group that is cut out and averaged in tasks of its own",
    place="the resample() to hours",
    cure="coarsen() or map_blocks(), so that a task averages all hours of a chunk: fewer, longer tasks",
    says=r"tasks? (are|were|is|was)? ?(too )?(small|short|tiny)|too many tasks|overhead"
    r"|(many|tiny|small|short) (short |small |tiny )?(tasks|groups|pieces|chunks|hours|bins)"
    r"|(large|big|huge|long) graph|graph (is|was|of|has|takes|took)|scheduler (is|was) busy"
    r"|building (the|a|its) graph"
    r"|(each|every|per) (hour|group|period|bin)",
    places=(*marked(__file__), function("hourly_means"), r"\bresample\b"),
    cures=r"(fewer|larger|longer|bigger|coarser) (and (fewer|larger|longer|bigger) )?(tasks|groups|pieces|chunks|bins)"
    r"|coarsen|map_blocks|flox|reshape|one task|(smaller|simpler) graph|whole (chunk|block|partition)",
    never={
        COMPUTED_AGAIN: "the means are computed once",
        HOLDS_GIL: "tasks do nearly nothing",
        MORE_WORKERS: "it is the number of tasks that takes the time, which more workers do not change",
        MORE_MEMORY: "the data are a few megabytes",
    },
)


def temperatures() -> xr.DataArray:
    times = pd.date_range("2023-01-01", periods=DAYS * 144, freq="10min")
    walk = np.random.default_rng(7).normal(0, 0.05, (len(times), CELLARS)).cumsum(axis=0)
    cellars = xr.DataArray(12 + walk, dims=("time", "cellar"), coords={"time": times})
    return cellars.chunk(time=144 * 10)


def hourly_means(cellars: xr.DataArray) -> xr.DataArray:
    return cellars.resample(time="1h").mean()  # <- here


def swing(means: xr.DataArray) -> float:
    """Mean of the largest difference of each cellar."""
    return float((means.max("time") - means.min("time")).mean().compute())


def bad(client: Client) -> float:
    return swing(hourly_means(temperatures()))  # <- here


def good(client: Client) -> float:
    return swing(temperatures().coarsen(time=6).mean())
