"""A large table is merged with a small one that is as finely partitioned.

source: NVIDIA/cudf issue 6757; dask/dask pull request 7143
date:   2020-11-12 (7143: 2021-01-29)
seen:   merges of tables whose partitions do not match take very long: most of the time goes into moving data.
cause:  both tables are shuffled by the key, the large one as well.
cure:   make the small table one partition, or a pandas DataFrame: it is sent to all, and the large one stays.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LOCK, PROCESSES, TWO_BY_TWO, Expected, marked, scaled

CLUSTER = TWO_BY_TWO
PARTITIONS = 40
ROWS, CUSTOMERS = scaled(250_000), 2_000

EXPECTED = Expected(
    cause="both tables are shuffled for the merge",
    place="the merge(), or the compute() of its result",
    cure="one partition (or pandas) for the small table; fewer columns or rows",
    says=r"shuffl|p2p|both tables|\bmerg(e|ing)\b",
    places=marked(__file__),
    cures=r"broadcast|one partition|pandas|npartitions|index|small(er)? (table|side|one)"
    r"|fewer (bytes|columns|rows)|filter",
    never={
        LOCK: "the locks are Dask's own, while it sends",
        r"dynamic-code": "this is no place in the user's code",
        PROCESSES: "each worker would shuffle as much",
    },
)


def orders_of(day: int) -> pd.DataFrame:
    rng = np.random.default_rng(day)
    columns = {f"item_{i}": rng.random(ROWS) for i in range(4)}
    return pd.DataFrame({"customer": rng.integers(0, CUSTOMERS * PARTITIONS, ROWS), **columns})


def customers_of(part: int) -> pd.DataFrame:
    numbers = np.arange(CUSTOMERS) + part * CUSTOMERS
    return pd.DataFrame({"customer": numbers, "discount": (numbers % 10) / 100})


def tables() -> tuple[dd.DataFrame, dd.DataFrame]:
    orders = dd.from_map(orders_of, range(PARTITIONS), meta=orders_of(0).head(0))
    return orders, dd.from_map(customers_of, range(PARTITIONS), meta=customers_of(0).head(0))


def bad(client: Client) -> float:
    orders, customers = tables()
    merged = orders.merge(customers, on="customer")  # <- here
    prices = merged[[f"item_{i}" for i in range(4)]].sum(axis=1)
    return float((prices * (1 - merged["discount"])).sum().compute())  # <- here


def good(client: Client) -> float:
    orders, customers = tables()
    merged = orders.merge(customers.repartition(npartitions=1), on="customer")
    prices = merged[[f"item_{i}" for i in range(4)]].sum(axis=1)
    return float((prices * (1 - merged["discount"])).sum().compute())
