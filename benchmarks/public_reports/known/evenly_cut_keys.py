"""A table of a database is read in partitions that are cut evenly by the value of a key, which is not evenly spread.

source: dask/dask issue 6121
date:   2020-04-22
seen:   read_sql_table makes partitions from some megabytes to two gigabytes; most of the workers are done early, and
        the job waits for a few.
cause:  the range between the smallest and the largest key is cut into equal steps, but most rows have keys in a small
        part of it: one partition has most of the rows, and one worker most of the work.
cure:   divisions after the number of rows (quantiles of the key), so that partitions are alike.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sqlite3

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
PARTITIONS, ROWS = 8, scaled(1_500_000)
#: Keys of nearly all the rows are in the last part of what there is: the service grew.
LAST = 8_000_000
NOTE = re.compile(r"order (\d+) of customer (\d+)")

EXPECTED = Expected(
    cause="the partitions are very unequal: one has nearly all the rows, so that one task of rows_between takes"
    " nearly all"
    " of the time while the other worker has nothing to do",
    place="rows_between (or the read, from_map) with the even cuts; the longest task",
    cure="cut by the number of rows (quantiles as divisions), or more and smaller partitions: split the largest",
    says=r"skew|uneven|unequal|imbalanc|unbalanc|balance|(long|larg|bigg|slow)e?st|straggl|\bidle|nothing to (do|run)"
    r"|one (task|partition|worker)\b|(wait|last)\w*\b.{0,40}\b(one|few|last|longest)|critical path|much"
    r" (longer|larger|bigger)"
    r"|longer than|tail\b|few tasks",
    places=(
        *marked(__file__),
        function("rows_between"),
        function("fields"),
        r"from_map",
        r"frommap",
        function("summary"),
    ),
    cures=r"split|smaller|(even|equal|balanced|similar|same)\w*\b.{0,30}(size|rows|partition|work|piece|task)"
    r"|quantile|repartition"
    r"|divisions|more (partitions|tasks|pieces)|finer|by (the )?number of rows|(even|balanc)\w*|partition_size",
    never={
        MORE_WORKERS: "one of the two has nothing to do as it is",
        PROCESSES: "one of the two has nothing to do as it is",
        HOLDS_GIL: "one thread a worker",
        LONGER_TASKS: "the opposite is the cure",
        MORE_MEMORY: "there is enough",
    },
)


def database() -> str:
    return str(folder("orders") / "orders.sqlite")


def prepare() -> None:
    rng = np.random.default_rng(7)
    early = rng.integers(1, LAST * 7 // 8, ROWS // 20)
    late = rng.integers(LAST * 7 // 8, LAST, ROWS - len(early))
    keys = np.unique(np.concatenate([early, late, [1, LAST - 1]]))
    orders = pd.DataFrame(
        {
            "id": keys,
            "note": [f"order {key % 977} of customer {key % 10_007}; paid" for key in keys.tolist()],
            "cents": rng.integers(100, 90_000, len(keys)),
        }
    )
    with sqlite3.connect(database()) as connection:
        connection.execute("create table orders (id integer primary key, note text, cents integer)")
        orders.to_sql("orders", connection, if_exists="append", index=False)


def rows_between(bounds: tuple[int, int]) -> pd.DataFrame:
    with sqlite3.connect(f"file:{database()}?mode=ro", uri=True) as connection:
        query = "select id, note, cents from orders where id >= ? and id < ?"
        rows = pd.read_sql_query(query, connection, params=bounds)  # <- here
    numbers = [fields(note) for note in rows["note"]]
    columns = pd.DataFrame(numbers, columns=["order", "customer"], dtype="int64")
    return columns.assign(cents=rows["cents"])


def fields(note: str) -> tuple[int, int]:
    """Number of the order, and a pseudonym of the customer."""
    order, customer = NOTE.match(note).groups()
    digest = hashlib.sha256(customer.encode())
    for _ in range(8):
        digest = hashlib.sha256(digest.digest())
    return int(order), int.from_bytes(digest.digest()[:4]) % 500


def summary(divisions: list[int]) -> float:
    meta = pd.DataFrame({"order": [0], "customer": [0], "cents": [0]}).head(0)
    bounds = list(itertools.pairwise(divisions))
    orders = dd.from_map(rows_between, bounds, meta=meta)  # <- here
    by_customer = orders.groupby("customer").agg({"cents": "sum", "order": "mean"}).compute()  # <- here
    return float((by_customer["cents"] / 1e6 + by_customer["order"]).sum())


def bad(client: Client) -> float:
    with sqlite3.connect(database()) as connection:
        first, last = connection.execute("select min(id), max(id) from orders").fetchone()
    return summary(np.linspace(first, last + 1, PARTITIONS + 1).astype(int).tolist())  # <- here


def good(client: Client) -> float:
    with sqlite3.connect(database()) as connection:
        keys = np.array(connection.execute("select id from orders order by id").fetchall())[:, 0]
    cuts = keys[np.linspace(0, len(keys) - 1, PARTITIONS + 1).astype(int)]
    cuts[-1] += 1
    return summary(cuts.tolist())
