"""Levels of rivers, one every ten minutes, are averaged to hours, gauge by gauge.

source: pydata/xarray issue 4498
date:   2020-10-09
seen:   hourly means of a series take some hundred times as long with xarray's resample as with that of pandas, and
        the finer the result, the longer.
cause:  without further packages, xarray goes through the groups in a Python loop, with an object for each hour, which
        is sliced, averaged and put together again.
cure:   pandas' resample for a series, or coarsen (a reshape) as steps are regular, or an installed flox.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "pandas")
CLUSTER = TWO_BY_ONE
GAUGES, HOURS, PER_HOUR = scaled(68), 2_400, 6

EXPECTED = Expected(
    cause="resample of xarray handles each of thousands of hours by itself, in a Python loop with small objects",
    place="the line with resample(time='1h').mean() in hourly",
    cure="coarsen, or resample in pandas or numpy (reshape), or flox",
    says=r"resampl|group.?by|(each|every|per|many|thousands of|\d+) (hour|group|bin|period|window|small)|python"
    r" (loop|code|object)"
    r"|loop|overhead|one (by one|at a time|after)|slic|small (array|object|piece)|\bisel\b|reduc|concat",
    places=(*marked(__file__), function("hourly"), function("peak"), r"resampl|group.?by"),
    cures=r"coarsen|pandas|numpy|reshape|flox|vectori[sz]|whole array|at once|bincount|reduceat|numbagg|instead of"
    r"|faster"
    r"|fewer (group|call)|cheaper|without",
    never={
        MORE_WORKERS: "both cores are busy with needless work",
        MORE_MEMORY: "there is enough",
        PROCESSES: "they have one thread each",
        LONGER_TASKS: "tasks take half a second",
        COMPUTED_AGAIN: "each gauge is handled once",
    },
)


def levels(gauge: int) -> xr.DataArray:
    """Levels at a gauge, every ten minutes."""
    rng = np.random.default_rng([5, gauge])
    times = pd.date_range("2021-01-01", periods=HOURS * PER_HOUR, freq="10min")
    return xr.DataArray(rng.normal(0, 1, times.size).cumsum(), dims="time", coords={"time": times}, name="level")


def hourly(level: xr.DataArray) -> np.ndarray:
    return level.resample(time="1h").mean().values  # <- here


def hourly_by_shape(level: xr.DataArray) -> np.ndarray:
    return level.coarsen(time=PER_HOUR).mean().values


def peak(gauge: int) -> float:
    """Highest mean of an hour, and the range of those means."""
    means = hourly(levels(gauge))  # <- here
    return float(means.max() + np.ptp(means))


def peak_by_shape(gauge: int) -> float:
    means = hourly_by_shape(levels(gauge))
    return float(means.max() + np.ptp(means))


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(peak, range(GAUGES)))))


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(peak_by_shape, range(GAUGES)))))
