"""Levels of wells, every ten minutes, are averaged by the hour in tasks, with xarray.

source: pydata/xarray issue 4498, with the question on Stack Overflow that it names (64282393)
date:   2020-10-09
seen:   resample to hours takes a hundred times as long as that of pandas, and the longer the more hours there are.
cause:  without flox, xarray's resample makes an array for each hour, in a loop of Python.
cure:   resample with pandas (or install flox, or coarsen or reshape where the times are even).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
NEEDS = ("xarray", "pandas")
WELLS = scaled(80)
TIMES = 12_960

EXPECTED = Expected(
    cause="xarray's resample loops over the hours in Python, which holds the GIL, in each task",
    place="function hours_of: the resample().mean() in it",
    cure="resample of pandas, flox, coarsen() or reshape()",
    says=r"resampl|groupby|\bGIL\b|python (loop|code|function)|one (by one|at a time)"
    r"|(each|every|per) (hour|group|call)"
    r"|loops?\b|hours_of|vectori[sz]|xarray",
    places=(*marked(__file__), function("hours_of")),
    cures=r"pandas|flox|coarsen|reshape|numpy|vectori[sz]|numbagg|bottleneck|bincount|reduceat|at once|array operations"
    r"|fewer (groups|calls)|process",
    never={LONGER_TASKS: "the tasks are long", MORE_MEMORY: "memory is ample"},
)


def levels_of(well: int) -> xr.DataArray:
    times = pd.date_range("2021-03-01", periods=TIMES, freq="10min")
    levels = np.random.default_rng(well).random(TIMES).cumsum() % 9
    return xr.DataArray(levels, dims=["time"], coords={"time": times}, name="level")


def hours_of(well: int) -> float:
    """Largest change from one hour to the next."""
    hours = levels_of(well).resample(time="1h").mean()  # <- here
    return float(np.abs(np.diff(hours.values)).max())


def hours_by_pandas(well: int) -> float:
    hours = levels_of(well).to_series().resample("1h").mean()
    return float(np.abs(np.diff(hours.to_numpy())).max())


def bad(client: Client) -> float:
    changes = client.map(hours_of, range(WELLS))  # <- here
    return float(sum(client.gather(changes)))  # <- here


def good(client: Client) -> float:
    changes = client.map(hours_by_pandas, range(WELLS))
    return float(sum(client.gather(changes)))
