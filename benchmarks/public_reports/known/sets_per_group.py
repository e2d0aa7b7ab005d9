"""Distinct values per group are counted by an aggregation of Python sets.

source: dask/dask issue 10589 (the apply in Dask's own nunique: dask/dask pull request 10910)
date:   2023-10-23
seen:   a groupby with the custom aggregation "cnunique" of the documentation, which makes a list of the set of each
        group's values, for a frame of a million rows. Of a like apply in Dask itself its maintainer says that it "just
        kills the GIL": without it, a query took 10 s instead of 60.
cause:  chunk and finalize are called by pandas for each group: there are many small groups, so that is Python for
        nearly each row.
cure:   nunique(), or drop_duplicates() and a count: whole columns.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PARTITIONS, ROWS = 16, scaled(60_000)
CLIENTS, BRANDS = scaled(40_000), 50

EXPECTED = Expected(
    cause="Python for each group, in the functions of the aggregation",
    place="the agg() of the aggregation, or its functions",
    cure="nunique() or drop_duplicates()",
    says=r"(by|each|every|per|for|many) (row|group|value|element)|Python (by|for|code|bytecode|functions?)|in Python\b"
    r"|interpreted|\bapply\b|groupby|aggregat|\bGIL\b",
    places=(*marked(__file__), function("distinct"), function("together"), function("number_of")),
    cures=r"nunique|drop_duplicates|built.?in|whole columns|columns at once|vectori[sz]|instead of (apply|Python"
    r"|a function)"
    r"|numba|numpy|without apply",
    never={
        PROCESSES: "there are as many processes as cores",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "a task takes a second",
    },
)


def purchases(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    return pd.DataFrame({"client": rng.integers(0, CLIENTS, ROWS), "brand": rng.integers(0, BRANDS, ROWS)})


def all_purchases() -> dd.DataFrame:
    return dd.from_map(purchases, range(PARTITIONS), meta=purchases(0).head(0))


def distinct(groups):
    return groups.apply(lambda brands: list(set(brands)))  # <- here


def together(groups):
    return groups.agg(lambda lists: [brand for one in lists for brand in one])  # <- here


def number_of(lists: pd.Series) -> pd.Series:
    return lists.apply(lambda brands: len(set(brands)))  # <- here


def bad(client: Client) -> float:
    count = dd.Aggregation("distinct_count", distinct, together, number_of)
    brands = all_purchases().groupby("client").agg({"brand": count})["brand"]  # <- here
    return float((brands.astype("i8") ** 2).sum().compute())  # <- here


def good(client: Client) -> float:
    brands = all_purchases().groupby("client")["brand"].nunique()
    return float((brands**2).sum().compute())
