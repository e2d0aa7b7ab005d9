"""A table of contracts gets a pair of columns for each kind of event, by assignments in a loop.

source: dask/dask issue 11455; of the same kind: dask/dask-expr issue 786, dask/dask issue 11517
date:   2024-10-23 (issue 786: 2024-01-19)
seen:   a few rows take 10 s, of which nearly none is for the data, and longer with each further column; some years
        before it had been 2 s.
cause:  each assignment nests the expression of the whole table once more, and the client goes through all of these
        expressions, again and again, to optimize them, before the first task runs.
cure:   make all columns in one function, for each partition.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
KINDS, PARTS, ROWS = scaled(42), 8, 50_000

EXPECTED = Expected(
    cause="the client optimizes a deeply nested expression, made by the assignments of a loop, before any task runs;"
    " the workers are idle",
    place="the assignments in with_columns, or the compute() of total; in the client",
    cure="make all columns at once, with one assign or a function for each partition (map_partitions)",
    says=r"optimi[sz](e|es|ed|ing|ation)\b|expressions?\b|(build|mak|prepar|construct|plan)\w*\W+(\w+\W+){0,4}graph"
    r"|graph\W+(\w+\W+){0,8}(client|before|built|build)|before (any|the first|a) task|query plan|client\W+(\w+\W+){0,6}"
    r"(busy|builds?|prepar|plans?|works?)",
    places=(*marked(__file__), function("with_columns"), function("total")),
    cures=r"map_partitions|one (assign|call|function|step)|\bassign\b|at once|together|fewer (columns|steps|operations"
    r"|expressions|assignments|layers)|in pandas|single",
    never={
        MORE_WORKERS: "those that there are have nothing to do",
        PROCESSES: "those that there are have nothing to do",
        LONGER_TASKS: "nearly no time is in tasks",
        HOLDS_GIL: "it is not in the tasks",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
    },
)


def events(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    return pd.DataFrame(
        {
            "kind": rng.integers(0, KINDS, ROWS),
            "day": rng.integers(0, 700, ROWS).astype(float),
            "amount": rng.gamma(2.0, 50.0, ROWS),
        }
    )


def contracts() -> dd.DataFrame:
    table: dd.DataFrame = dd.from_map(events, range(PARTS), meta=events(0).head(0))
    return table


def with_columns(table: dd.DataFrame) -> dd.DataFrame:
    """Day and amount of each kind of event in columns of their own."""
    for kind in range(KINDS):
        table[f"day_{kind}"] = table["day"].where(table["kind"] == kind, 0.0)  # <- here
        table[f"amount_{kind}"] = table["amount"].where(table["kind"] == kind, 0.0)  # <- here
    return table


def with_columns_at_once(part: pd.DataFrame) -> pd.DataFrame:
    columns = {}
    for kind in range(KINDS):
        columns[f"day_{kind}"] = part["day"].where(part["kind"] == kind, 0.0)
        columns[f"amount_{kind}"] = part["amount"].where(part["kind"] == kind, 0.0)
    return part.assign(**columns)


def total(table: dd.DataFrame) -> float:
    """Mean of each column, weighed by its place."""
    means = table.mean().compute()  # <- here
    return float(sum(place * means[name] for place, name in enumerate(sorted(means.index))))


def bad(client: Client) -> float:
    return total(with_columns(contracts()))


def good(client: Client) -> float:
    return total(contracts().map_partitions(with_columns_at_once))
