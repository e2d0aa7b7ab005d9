"""Days of fog at a coast: daily means of what is measured each hour.

source: github.com/ScottWales/climtas, notebook on resampling
date:   2026-12-01 (seen; its own is not given)
seen:   a year of hourly fields, resampled to days: 56 chunks became 2920, and 56 tasks 11736.
cause:  resample makes a chunk (and several tasks) for each single day.
cure:   as days have 24 values each, take the mean of blocks of 24 values, which keeps the chunks.
"""

from __future__ import annotations

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

NEEDS = ("xarray",)
CLUSTER = TWO_BY_TWO
DAYS = scaled(360)
SIDE = 80
PER_CHUNK = 60

EXPECTED = Expected(
    cause="resample makes chunks and tasks for each day: thousands of tiny tasks",
    place="the line of resample, or that which computes",
    cure="coarsen (blocks of 24 hours), or flox",
    says=r"resampl\w*|groupby|(small|short|tiny|brief|many|thousands of)\b.{0,40}\b(tasks?|chunks?)|(tasks?"
    r"|chunks?)\b.{0,30}"
    r"\b(small|short|tiny|too many)|overhead|scheduler.{0,40}(busy|limit|bottleneck)|\bgraphs?\b",
    places=(*marked(__file__), function("daily")),
    cures=r"coarsen|reshape|flox|map_blocks|blocks? of|(larger|bigger|fewer|longer)\b.{0,30}(chunks?|tasks?"
    r"|groups?)|rechunk"
    r"|\.chunk\(",
    never={
        COMPUTED_AGAIN: "each hour is made once",
        MORE_WORKERS: "more of them would have as little to do",
    },
)


def visibility():
    """Hourly visibility on a grid along the coast, in kilometres."""
    import dask.array as da
    import xarray as xr

    hours = np.datetime64("2019-01-01", "ns") + np.arange(24 * DAYS) * np.timedelta64(1, "h")
    values = da.random.default_rng(6).gamma(2.0, 4.0, (len(hours), SIDE, SIDE), chunks=(24 * PER_CHUNK, 20, 40))
    return xr.DataArray(values, dims=("time", "y", "x"), coords={"time": hours}, name="visibility")


def daily(hourly):
    return hourly.resample(time="1D").mean()  # <- here


def days_of_fog(means) -> float:
    return float((means < 7).sum("time").max().compute() + means.mean().compute())  # <- here


def bad(client: Client) -> float:
    return days_of_fog(daily(visibility()))  # <- here


def good(client: Client) -> float:
    return days_of_fog(visibility().coarsen(time=24).mean())
