"""Alloys are rated by a formula of four numbers, a delayed call for each row of a table.

source: dask/dask issue 5044
date:   2019-07-02
seen:   a loop over rows of a table takes more than ten times as long with dask.delayed as without.
cause:  each call takes some microseconds, and as a task of its own some hundred more: to be made, sent, scheduled and
        gathered.
cure:   a task for many rows.
"""

from __future__ import annotations

import dask
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
ALLOYS = scaled(4_000)
BATCH = 500

EXPECTED = Expected(
    cause="thousands of tasks of some microseconds: what Dask needs for each is many times that",
    place="the delayed calls or the compute of bad, or hardness, which tasks run",
    cure="larger tasks, for some hundred rows each",
    says=r"(small|short|tiny|many|brief|quick) (\w+ )?(tasks|calls)|overhead|scheduler|too many|number of tasks"
    r"|microseconds?|milliseconds?|\b[µu]s\b|\bms\b|per task|longer tasks|fine[- ]grained|tasks? .{0,30}(short|small"
    r"|tiny|little)",
    places=(*marked(__file__), function("hardness"), function("bad")),
    cures=r"batch|fewer|longer tasks|larger|bigger|more (rows|work|items|calls|elements)|several|many (rows|calls)"
    r"|group|together|chunk|partition|combine|vectori[sz]|from_pandas|map_partitions|per task|at once",
    never={
        MORE_WORKERS: "workers wait for the scheduler",
        PROCESSES: "they have one thread each",
        HOLDS_GIL: "one thread a worker",
        MORE_MEMORY: "the table is small",
        COMPUTED_AGAIN: "each row is rated once",
        LOCK: "there is none",
    },
)


def table() -> pd.DataFrame:
    shares = np.random.default_rng(5).random((ALLOYS, 4))
    return pd.DataFrame(shares, columns=["carbon", "chrome", "nickel", "copper"])


def hardness(shares: np.ndarray) -> float:
    squares = shares**2
    return float(np.sin(1.0 / (1.0 + np.exp(-squares))).sum())


def hardness_of_many(rows: np.ndarray) -> list[float]:
    return [hardness(shares) for shares in rows]


def bad(client: Client) -> float:
    rows = table().to_numpy()
    results = [dask.delayed(hardness)(rows[number]) for number in range(ALLOYS)]  # <- here
    return float(sum(dask.compute(*results)))  # <- here


def good(client: Client) -> float:
    rows = table().to_numpy()
    results = [dask.delayed(hardness_of_many)(rows[start : start + BATCH]) for start in range(0, ALLOYS, BATCH)]
    return float(sum(sum(part) for part in dask.compute(*results)))
