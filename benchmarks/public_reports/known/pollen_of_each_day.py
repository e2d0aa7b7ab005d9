"""Counts of pollen are compared with what is usual on that day of the year, at each place of a grid.

source: pydata/xarray issue 392
date:   2015-04-15
seen:   groupby with a function that keeps the shape (each value less the mean of its group) takes 50 s before anything
        is computed, where the mean of groups takes 0.2 s.
cause:  groups lie across all chunks of time. Each group is picked from many chunks and the results are put back in
        order, by thousands of small tasks.
cure:   chunks in space that have all times, and a function of whole blocks within tasks.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "pandas")
CLUSTER = TWO_BY_ONE
DAYS, PLACES = 365 * scaled(2), 40

EXPECTED = Expected(
    cause="a function mapped over 366 groups, each of which lies in many chunks, makes thousands of small tasks",
    place="groupby(...).map in bad, or the compute() after it",
    cure="all times in a chunk, and the groups within tasks; or fewer groups or chunks",
    says=r"(small|short|tiny|brief|many|thousands of|\d{4,}|number of) tasks|tasks are (too )?(small|short|tiny)"
    r"|groupby|groups?\b|overhead|graph|chunks?\b.{0,30}(small|across|time|many)|(small|many|tiny) (chunks"
    r"|pieces|slices)|(build|construct|creat)\w*|concat\w*",
    places=(*marked(__file__), function("less_its_mean"), function("groupby"), function("counts")),
    cures=r"rechunk|chunks?\b|map_blocks|apply_ufunc|flox|larger|bigger|longer|fewer|whole|in(side)? (the )?tasks?|one"
    r" task|without groupby|instead of",
    never={
        MORE_WORKERS: "workers wait for small tasks",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
    },
)


def counts() -> xr.DataArray:
    values = da.random.default_rng(392).gamma(2.0, 30.0, (DAYS, PLACES, PLACES), chunks=(10, PLACES, PLACES))
    return xr.DataArray(
        values,
        dims=("time", "y", "x"),
        coords={"time": pd.date_range("2001-01-01", periods=DAYS)},
    )


def less_its_mean(group: xr.DataArray) -> xr.DataArray:
    return group - group.mean("time")


def bad(client: Client) -> float:
    unusual = counts().groupby("time.dayofyear").map(less_its_mean)  # <- here
    return float((unusual**2).mean().compute())  # <- here


def of_block(values: np.ndarray, day: np.ndarray) -> np.ndarray:
    flat = pd.DataFrame(values.reshape(len(values), -1))
    unusual: np.ndarray = (flat - flat.groupby(day).transform("mean")).to_numpy()
    return unusual.reshape(values.shape)


def good(client: Client) -> float:
    pollen = counts()
    day = pollen["time"].dt.dayofyear.to_numpy()
    unusual = pollen.data.rechunk((-1, 10, PLACES)).map_blocks(of_block, day=day, dtype=float)
    return float((unusual**2).mean().compute())
