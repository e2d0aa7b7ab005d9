"""Columns with few different texts are kept as Python strings while a table is joined and grouped.

source: dask/dask issue 4001 (its answers of 2018-10-13: object columns run at the speed of Python and take many times
        the memory); of the same kind: dask/distributed issue 1787
date:   2018-10-13 (the other 2018-02-23)
seen:   grouping by columns of text takes many times as long as by numbers, and moving such a table between workers, or
        keeping it, far more memory than its files have.
cause:  dtype object: each value is a Python object, which is hashed, compared, counted and pickled one by one.
cure:   categories (or Arrow's strings), which are made once, when the data are read.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
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
CONFIG = {"dataframe.convert-string": False}
FILES, ROWS = 8, scaled(1_000_000)
CODES = {"country": 190, "airport": 900, "plane": 60, "reason": 25}

EXPECTED = Expected(
    cause="the columns of text are of dtype object (Python strings): reading, grouping, counting and measuring"
    " them takes"
    " nearly all of the tasks' time",
    place="the groupby (or the persist) of flights with object columns; the tasks that make them",
    cure="category or string[pyarrow] dtypes (convert-string), made when the data are read",
    says=r"\bobject\b|objects\b|string|text|categor|dtype|pickl|serial|python (obj|str)|hash|factori[sz]e"
    r"|group.?by|isin|\bstr\b",
    places=(
        *marked(__file__),
        function("flights"),
        function("load"),
        function("late"),
        r"group.?by|load|nunique|count",
    ),
    cures=r"categor|pyarrow|arrow|string\[|string dtype|convert-string|(other|another|smaller|compact|native)"
    r" (dtype|type)|dtypes?\b|integers?|codes",
    never={
        MORE_WORKERS: "the cores are busy with needless work",
        LONGER_TASKS: "a task takes a second",
        MORE_MEMORY: "there is enough",
        r"(?i)slow disk|disk is slow|faster disk": "it is CPU time",
    },
)


def prepare() -> None:
    for number in range(FILES):
        rng = np.random.default_rng(number)
        columns = {
            name: pd.Categorical.from_codes(
                rng.integers(0, count, ROWS), [f"{name} no. {code:05d}" for code in range(count)]
            )
            for name, count in CODES.items()
        }
        frame = pd.DataFrame({**columns, "minutes": rng.gamma(2, 15, ROWS)})
        frame.to_parquet(folder("flights") / f"{number}.parquet", index=False)


def load(number: int, dtype: str) -> pd.DataFrame:
    rows = pd.read_parquet(folder("flights") / f"{number}.parquet")
    return rows.astype(dict.fromkeys(CODES, dtype)) if dtype == "object" else rows  # <- here


def flights(dtype: str) -> dd.DataFrame:
    return dd.from_map(load, range(FILES), dtype=dtype, meta=load(0, dtype).head(0))


def late(table: dd.DataFrame) -> float:
    kept = table.persist()  # <- here
    total = 0.0
    for name in CODES:
        by_code = kept.groupby(name, observed=True)["minutes"]
        for one in (by_code.mean(), by_code.max(), by_code.std()):
            total += one.sum().compute()  # <- here
    by_two = kept.groupby(["country", "reason"], observed=True)["minutes"].max()
    return float(total + by_two.sum().compute())  # <- here


def bad(client: Client) -> float:
    return late(flights("object"))


def good(client: Client) -> float:
    return late(flights("category"))
