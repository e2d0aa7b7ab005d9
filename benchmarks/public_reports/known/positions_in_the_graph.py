"""Rows of a dataset of many variables are selected by flags that the script has in memory.

source: pydata/xarray issue 5054
date:   2021-03-18
seen:   a flag for each of 40 million rows selects half of them, in all variables of a dataset. isel() takes several GB
        of the client's memory, and keeps them, and a computation on the selection takes several GB more if it runs on a
        cluster.
cause:  the flags become the positions of the rows, eight bytes each, which are written into the graph, once for each
        variable. All of that goes to the scheduler, and on to the workers.
cure:   keep the flags an array in chunks, which select block by block on the workers.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray",)
CLUSTER = TWO_BY_ONE
VARIABLES = 10
ROWS = scaled(6_000_000)
CHUNK = 500_000

EXPECTED = Expected(
    cause="the positions of the chosen rows, 24 MB, are in the graph once for each variable, and travel through the"
    " scheduler",
    place="isel() by an array in memory, or the compute() that sends the graph",
    cure="select by flags that are an array in chunks (on the workers), not by an array of the client",
    says=r"graph|serial|pickl|large (object|argument|graph|task)|(sent|send|sends|sending|transfer\w*|carr(y|ies))\b"
    r"|index(es|ing)?\b|positions?|scheduler\b.{0,40}\b(busy|memory|receiv|MB|GB)|\b\d+ [kMG]i?B\b",
    places=(*marked(__file__), function("isel"), function("take")),
    cures=r"scatter|chunk|(on|in) the workers?|dask array|block by block|map_blocks|where\(|persist"
    r"|load\w* .*(task|worker)"
    r"|smaller (graph|arguments?|index)|(not|instead of) .*(graph|client)|as data",
    never={
        LONGER_TASKS: "the graph is large, not long: its tasks are few",
        MORE_WORKERS: "all wait for the graph",
    },
)


def flags() -> np.ndarray:
    return np.random.default_rng(1).random(ROWS) < 0.5


def calls() -> xr.Dataset:
    names = [f"variable_{i}" for i in range(VARIABLES)]
    return xr.Dataset({name: ("row", da.arange(ROWS, chunks=CHUNK) % (3 + i)) for i, name in enumerate(names)})


def bad(client: Client) -> float:
    chosen = calls().isel(row=flags())  # <- here
    return float(chosen.sum().to_array().sum().compute())  # <- here


def good(client: Client) -> float:
    chosen = da.from_array(flags(), chunks=CHUNK)
    rows = calls()
    return float(sum(rows[name].data[chosen].sum() for name in rows).compute())
