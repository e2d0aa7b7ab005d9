"""A function is applied to each group of a table that is not sorted by it.

source: dask/dask issues 4239, 8503, 4372; h2oai/db-benchmark issue 86
date:   2018-11-25 (8503: 2021-12-20; db-benchmark: 2019-05-16)
seen:   groupby().apply() of a function of one's own is slower than with pandas alone, and than any aggregation.
cause:  all rows are shuffled first, so that each group is in one partition; then Python calls the function for each of
        tens of thousands of groups, which makes a DataFrame of each.
cure:   for what is an aggregation, agg() or dd.Aggregation: partitions are reduced first, and nothing else moves.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    PROCESSES,
    TWO_BY_TWO,
    WAITS_FOR_CORES,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PARTITIONS, ROWS = 16, 40_000
CUSTOMERS = scaled(60_000)

EXPECTED = Expected(
    cause="Python for each of 60,000 groups, in groupby().apply(), after a shuffle of all rows",
    place="the apply(), its function, or the compute() of the groups",
    cure="an aggregation: agg() or dd.Aggregation",
    says=r"group|apply|shuffl|Python (by|for|code|bytecode)",
    places=(*marked(__file__), function("spent")),
    cures=r"\bagg|aggregat|reduc|whole columns|vectori[sz]",
    never={
        LOCK: "no task holds a lock that others need",
        PROCESSES: "there are as many processes as cores",
        WAITS_FOR_CORES: "with fewer threads it takes as long",
    },
)


def sample(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"customer": rng.integers(0, CUSTOMERS, ROWS), "price": rng.random(ROWS), "pieces": rng.integers(1, 5, ROWS)}
    )


def purchases() -> dd.DataFrame:
    return dd.from_map(sample, range(PARTITIONS), meta=sample(0).head(0))


def spent(rows: pd.DataFrame) -> float:
    return (rows["price"] * rows["pieces"]).sum()  # <- here


def bad(client: Client) -> float:
    by_customer = purchases().groupby("customer")[["price", "pieces"]].apply(spent, meta=("spent", "f8"))  # <- here
    return float(by_customer.max().compute())  # <- here


def good(client: Client) -> float:
    table = purchases()
    table["paid"] = table["price"] * table["pieces"]
    return float(table.groupby("customer")["paid"].sum().max().compute())
