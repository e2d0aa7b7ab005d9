"""A few partitions of a partitioned dataset are wanted, and all of it is read.

source: dask/dask issue 3168; of the same kind: dask/dask issue 7090
date:   2018-02-15 (the other 2021-01-21)
seen:   choosing one value of the column after which the files are partitioned takes as long as reading everything.
cause:  the rows are chosen after they have been read (here: in a function of the user, which Dask cannot look into), so
        all files are read, and nearly all rows are dropped.
cure:   filters= of read_parquet, so that only the files of that value are opened.
"""

from __future__ import annotations

import shutil

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
MONTHS, ROWS = 40, scaled(900_000)
WANTED = 17

EXPECTED = Expected(
    cause="all 40 months are read, and the rows of 39 of them are dropped at once: the time goes into"
    " read_parquet, for data"
    " that nobody uses",
    place="the read_parquet(), or of_month() and its map_partitions, where the rows are dropped",
    cure="read_parquet(filters=[('month', '==', 17)]), or a comparison that Dask can push into the read, or"
    " read that folder only",
    says=r"read|load|drop|discard|thrown away|filter|unused|not used|never used|(most|nearly all|few|%"
    r"|fraction) .{0,30}(rows|data|bytes|files|partition)"
    r"|parquet",
    places=(*marked(__file__), r"read.?parquet", function("of_month"), function("bad"), function("spread")),
    cures=r"filters?\b|pushd|push(ed|es)? (down|into)|only (the|those|what|read)|fewer (files|rows|partitions)"
    r"|partition(s|ing)? (that|which|of)"
    r"|skip|before (it is |they are )?read|while reading|at the read|when reading|select",
    never={
        MORE_WORKERS: "the work is needless",
        LONGER_TASKS: "a task takes some tenths of a second",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each file is read once",
        HOLDS_GIL: "one thread a worker",
    },
)


def home() -> str:
    return str(folder("sales"))


def prepare() -> None:
    customers = pa.array([f"customer-{number:06d}" for number in range(200_000)])
    articles = pa.array([f"article {number}" for number in range(9_000)])
    for month in range(MONTHS):
        place = folder("sales") / f"month={month}"
        place.mkdir(exist_ok=True)
        if month >= 4:  # enough that differ
            shutil.copy(folder("sales") / f"month={month % 4}" / "part.parquet", place)
            continue
        rng = np.random.default_rng(month)
        columns = {
            "customer": customers.take(pa.array(rng.integers(0, 200_000, ROWS))),
            "article": articles.take(pa.array(rng.integers(0, 9_000, ROWS))),
            "cents": rng.integers(1, 90_000, ROWS),
            "pieces": rng.integers(1, 20, ROWS),
        }
        pq.write_table(pa.table(columns), place / "part.parquet", compression="gzip")


def of_month(sales: pd.DataFrame, month: int) -> pd.DataFrame:
    return sales[sales["month"].astype(int) == month]  # <- here


def spread(sales: dd.DataFrame) -> float:
    """Made of all columns."""
    whole = sales.compute()  # <- here
    spent = whole["cents"] * whole["pieces"]
    return float(spent.std() + whole["customer"].str[-3:].astype(int).mean() + whole["article"].str.len().sum() / 1e3)


def bad(client: Client) -> float:
    sales = dd.read_parquet(home())  # <- here
    return spread(sales.map_partitions(of_month, WANTED))  # <- here


def good(client: Client) -> float:
    return spread(dd.read_parquet(home(), filters=[("month", "==", WANTED)]))
