"""Anomalies by day of the year, with a task for each day of each chunk.

source: pangeo-data/distributed-array-examples issue 4; pydata/xarray issues 1832, 2237
date:   2023-04-13 (1832: 2018-01-16; 2237: 2018-06-18)
seen:   the mean of each day of the year, subtracted from the data, is slow and needs much memory, with any chunks.
cause:  the groups are days: for each of them the chunks are cut into small pieces, and there are tens of thousands of
        tasks. Larger chunks in time have as many.
cure:   work on whole series: chunks in space with all times, and a function of a whole chunk (or flox for the means).
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import TWO_BY_TWO, Expected, marked

NEEDS = ("xarray",)
CLUSTER = TWO_BY_TWO
YEARS = 2
SIDE = 60

EXPECTED = Expected(
    cause="tens of thousands of small tasks, as groupby cuts each chunk by day",
    place="the groupby(), or the compute() of the anomalies",
    cure="chunks with all times (map_blocks), or flox",
    says=r"(small|short|many|thousand\w*|\d[\d,]+) tasks|tasks are (too )?(small|short)"
    r"|tasks .*(each|by|per) (group|day)",
    places=marked(__file__),
    cures=r"flox|map_blocks|whole|all times|along|(re)?chunk .*(space|other|time)|fewer groups|groupby",
    never={r"(?i)(partitions|chunks) bigger|bigger (partitions|chunks)": "with larger chunks in time it takes longer"},
)


def temperatures(chunks: tuple[int, int, int]) -> xr.DataArray:
    times = pd.date_range("2000-01-01", periods=365 * YEARS)
    pieces = da.core.normalize_chunks(chunks, (len(times), SIDE, SIDE))
    values = da.map_blocks(warmth, chunks=pieces, dtype="f8", meta=np.empty((0, 0, 0)))
    return xr.DataArray(values, dims=("time", "lat", "lon"), coords={"time": times})


def warmth(block_info: dict | None = None) -> np.ndarray:
    (first, last), *sides = block_info[None]["array-location"]
    days = np.arange(first, last)[:, None, None]
    lat, lon = (np.arange(*side) for side in sides)
    return 10 * np.sin(days / 58) + lat[:, None] * 0.1 + np.cos(days * lon)


def anomalies_of(data: xr.DataArray) -> xr.DataArray:
    days = data["time"].dt.dayofyear.values
    means = data.groupby("time.dayofyear").mean()
    return data - means.sel(dayofyear=xr.DataArray(days, dims="time")).drop_vars("dayofyear")


def bad(client: Client) -> float:
    data = temperatures((30, SIDE, SIDE))
    by_day = data.groupby("time.dayofyear")  # <- here
    anomalies = by_day - by_day.mean()  # <- here
    return float((anomalies**2).mean().compute())  # <- here


def good(client: Client) -> float:
    data = temperatures((365 * YEARS, SIDE // 4, SIDE))
    anomalies = xr.map_blocks(anomalies_of, data, template=data)
    return float((anomalies**2).mean().compute())
