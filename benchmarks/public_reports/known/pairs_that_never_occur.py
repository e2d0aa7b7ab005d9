"""A sum by two categorical columns makes a row for every pair of categories, most of which never occur.

source: dask/dask issue 7024; like cases: dask/dask issues 4371 and 5820
date:   2021-01-02 (the like cases 2019-01-12 and 2020-01-22)
seen:   sums by two columns of categories: half a gigabyte of data does not fit into more than a hundred gigabytes of
        memory, and where it does fit it takes very long. With strings instead of categories there is no trouble.
cause:  groups are all pairs of categories, not those that are there (observed=False), so that the result of each
        partition is many times its input, and all of these have to be put together.
cure:   observed=True.

pandas 3 has made that the default; the program asks for the old one, as code does that has been kept as it was.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
PARTITIONS = scaled(36)
CITIES = 1_200
ARTICLES = 1_000
SOLD = 12
ROWS = 40_000

EXPECTED = Expected(
    cause="groupby with observed=False: each partition's result has a row for each of 1.2 million pairs of categories",
    place="the groupby of total, or the tasks that sum and put together",
    cure="observed=True",
    says=r"\bobserved\b|categor|combination|cartesian|cross product|(never|not) occur|empty (groups|rows)|pairs"
    r"|\b(more|many|too many) (groups|rows)|(large|big|huge|larger|bigger) (\w+ )?(results?|outputs?|intermediates?)"
    r"|(results?|outputs?|intermediates?) .{0,50}(larger|bigger|more|large|big|times)\b|groupby",
    places=(*marked(__file__), function("total"), r"(?i)groupby|_agg"),
    cures=r"\bobserved\b|categor|astype|remove_unused|as (strings|codes|integers|numbers)|fewer (groups|rows|pairs)"
    r"|smaller results?|split_out",
    never={
        LONGER_TASKS: "the results are large, the tasks long enough",
        MORE_MEMORY: "the pairs that occur take one hundredth of it",
    },
)


def sales(number: int) -> pd.DataFrame:
    random = np.random.default_rng(number)
    city = random.integers(0, CITIES, ROWS)
    article = (city * 37 + random.integers(0, SOLD, ROWS)) % ARTICLES
    return pd.DataFrame(
        {
            "city": pd.Categorical.from_codes(city, categories=[f"city {i}" for i in range(CITIES)]),
            "article": pd.Categorical.from_codes(article, categories=[f"article {i}" for i in range(ARTICLES)]),
            "amount": random.integers(1, 9, ROWS),
        }
    )


def total(observed: bool) -> float:
    frame = dd.from_map(sales, range(PARTITIONS))
    sums = frame.groupby(["city", "article"], observed=observed)["amount"].sum()  # <- here
    return float(sums.max().compute())  # <- here


def bad(client: Client) -> float:
    return total(observed=False)  # <- here


def good(client: Client) -> float:
    return total(observed=True)
