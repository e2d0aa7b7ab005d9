"""A column made by a slow apply is assigned to a table of cheeses, and all that is computed later makes it again.

source: dask/dask issue 2358
date:   2017-05-18
seen:   a column of shifted dates is slow to make with apply, as expected; but once it is assigned to the table,
        functions with map_partitions, which do not use it, are as slow.
cause:  the table is lazy, and each compute of a function of whole partitions makes all its columns first: apply, row
        by row, runs again each time.
cure:   give map_partitions only the columns it needs, or persist the table (or make the column without a loop over
        rows).
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
CHEESES = scaled(150_000)

EXPECTED = Expected(
    cause="the column due, made row by row by apply, is made again by each of four computes, three of which do not"
    " use it",
    place="the apply() in bad (due_of), or the computes of the functions that follow",
    cure="select the columns that are used before map_partitions, persist the table, compute all at once, or no"
    " apply by rows",
    says=r"again|repeat|recompute|twice|(three|four|3|4|several|many) times|each compute|not (used|needed)|unused"
    r"|row by row|by rows?\b"
    r"|each row|every row|\bapply\b|python (loop|code|speed|function)|DateOffset|per row",
    places=(*marked(__file__), function("due_of"), function("bad"), function("apply")),
    cures=r"persist|\bonce\b|columns?\b.{0,40}(need|use|select|only)|(only|select)\b.{0,40}columns?|together"
    r"|one compute|dask\.compute|keep"
    r"|vectori[sz]|whole (column|array|series)|without (a |the )?(loop|apply)|instead of apply|map_partitions|fewer",
    never={
        MORE_WORKERS: "there is less to do, not more to do it with",
        MORE_MEMORY: "there is enough",
    },
)


def cheeses() -> dd.DataFrame:
    rng = np.random.default_rng(6)
    made = pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 2_000, CHEESES), unit="D")
    table = pd.DataFrame(
        {"made": made, "months": rng.integers(2, 30, CHEESES), "weight": rng.normal(9.0, 1.0, CHEESES)}
    )
    lazy: dd.DataFrame = dd.from_pandas(table, npartitions=8)
    return lazy


def due_of(cheese: pd.Series) -> pd.Timestamp:
    return cheese["made"] + pd.DateOffset(months=cheese["months"])


def whey(table: pd.DataFrame) -> pd.Series:
    return table["weight"] * 8.7


def spring(table: pd.DataFrame) -> pd.Series:
    return table["made"].dt.month.between(3, 5).astype("f8")


def worth(table: pd.DataFrame) -> pd.Series:
    return np.sqrt(table["months"]) * table["weight"]


def with_due(table: dd.DataFrame) -> dd.DataFrame:
    due = table.apply(due_of, axis=1, meta=("due", "M8[us]"))  # <- here
    aged: dd.DataFrame = table.assign(due=due)  # <- here
    return aged


def summed(table: dd.DataFrame, name: str, columns: list[str]) -> float:
    functions = {"whey": whey, "spring": spring, "worth": worth}
    column = table[columns].map_partitions(functions[name], meta=(name, "f8"))  # <- here
    return float(column.sum().compute())  # <- here


def judged(table: dd.DataFrame, whole: bool) -> float:
    every = list(table.columns)
    days = (table["due"] - table["made"]).dt.days.sum().compute()
    needs = {"whey": ["weight"], "spring": ["made"], "worth": ["months", "weight"]}
    return float(days) + sum(
        summed(table, name, every if whole else columns) for name, columns in needs.items()
    )  # <- here


def bad(client: Client) -> float:
    return judged(with_due(cheeses()), whole=True)  # <- here


def good(client: Client) -> float:
    return judged(with_due(cheeses()), whole=False)
