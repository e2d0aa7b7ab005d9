"""How many different guests each inn has had.

source: dask/dask issue 4869
date:   2019-06-01
seen:   groupby(...).nunique() of a large table took many times as long as other aggregations, and as pandas; people
        still met it in 2023.
cause:  to count different values, each partition's distinct pairs of key and value are kept, found by a slow way, and
        gathered to where all are counted: nothing is really reduced before.
cure:   drop duplicates of both columns first, then count rows of each group.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
PARTS = 12
ROWS = scaled(600_000)
INNS, GUESTS = 20_000, 8

EXPECTED = Expected(
    cause="groupby nunique is slow: it finds distinct values group by group in each partition",
    place="the line of nunique",
    cure="drop_duplicates of both columns, then groupby(...).size()",
    says=r"nunique|distinct|unique values|(each|every|per) group|group by group",
    places=(*marked(__file__), r"nunique"),
    cures=r"drop_duplicates|duplicates|\bsize\b|\bcount\b|distinct pairs|other aggregation",
    never={LONGER_TASKS: "tasks take a second"},
)


def visits(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    return pd.DataFrame({"inn": rng.integers(0, INNS, ROWS), "guest": rng.integers(0, GUESTS, ROWS)})


def book() -> dd.DataFrame:
    return dd.from_map(visits, range(PARTS), meta=visits(0).iloc[:0])


def bad(client: Client) -> float:
    return float(book().groupby("inn")["guest"].nunique().compute().sum())  # <- here


def good(client: Client) -> float:
    pairs = book()[["inn", "guest"]].drop_duplicates()
    return float(pairs.groupby("inn").size().compute().sum())
