"""Thermometers of greenhouses note a value every ten minutes; what is wanted is their hourly means.

source: pydata/xarray issue 4498
date:   2020-10-09
seen:   ``resample`` of a series of 10,000 values to hours takes about 100 times as long as with pandas. To days it is
        faster, by as much as there are fewer groups.
cause:  each group is cut out and averaged by itself, in a Python loop over thousands of groups of six values.
cure:   pandas' resample for the series (or ``coarsen``, or flox), which takes all groups at once.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, LOCK, LONGER_TASKS, TWO_BY_ONE, Expected, marked, scaled

NEEDS = ("xarray", "pandas")
CLUSTER = TWO_BY_ONE
HOUSES = scaled(18)
VALUES = 45_000

EXPECTED = Expected(
    cause="xarray's resample().mean() works in Python, group by group, on thousands of groups of six values",
    place="resample(...).mean() in hourly",
    cure="an operation on all groups at once: resample of pandas, coarsen, or flox",
    says=r"(each|every|per|one|single|many|small|thousands of|by) group|group by group|groupby|resampl"
    r"|Python (code|loop)|pure Python"
    r"|\bGIL\b|loop\w*[^.]{0,30}(over|in Python)",
    places=(*marked(__file__), r"\bhourly\b", r"\bresample\b", r"\bwarmest\b"),
    cures=r"pandas|coarsen|flox|numbagg|reshape|vectori[sz]|at once|array operations|whole arrays?|NumPy|compiled",
    never={
        LOCK: "nobody waits for a lock of the program",
        LONGER_TASKS: "tasks of a second and more are long enough",
        COMPUTED_AGAIN: "everything is computed once",
    },
)


def readings(house: int) -> xr.DataArray:
    """Readings of a thermometer in a greenhouse."""
    times = pd.date_range("2021-01-01", periods=VALUES, freq="10min")
    values = np.random.default_rng(house).normal(22, 4, VALUES)
    return xr.DataArray(values, dims="time", coords={"time": times}, name="warmth")


def hourly(series: xr.DataArray) -> np.ndarray:
    return series.resample(time="1h").mean().values  # <- here


def hourly_of_table(series: xr.DataArray) -> np.ndarray:
    return series.to_series().resample("1h").mean().to_numpy()


def warmest(house: int) -> float:
    """Mean of the hours above 24 degrees."""
    hours = hourly(readings(house))  # <- here
    return float(hours[hours > 24].mean())


def warmest_of_table(house: int) -> float:
    hours = hourly_of_table(readings(house))
    return float(hours[hours > 24].mean())


def bad(client: Client) -> float:
    return sum(client.gather(client.map(warmest, range(HOUSES))))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(warmest_of_table, range(HOUSES))))
