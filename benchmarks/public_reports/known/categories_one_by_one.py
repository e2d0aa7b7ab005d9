"""Categorical columns of a table are made known one after the other, before features are made of them.

source: Nixtla/mlforecast issue 16
date:   2021-07-09
seen:   for a table that is read in a distributed way, the categories of each categorical column are asked for by
        themselves: as many passes over the data as there are such columns.
cause:  as_known computes the categories of its column from the whole table; called for each column, it reads and
        parses all files each time.
cure:   categorize with the list of columns, which finds the categories of all of them in one pass.
"""

from __future__ import annotations

import io

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.dataframe.utils import clear_known_categories
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

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
FILES, ROWS = 8, scaled(110_000)
STATICS = ("store", "region", "brand", "channel", "season", "weekday")

EXPECTED = Expected(
    cause="the table is read and parsed once for each categorical column, as as_known computes its categories on its"
    " own: the same tasks (sales_of) run six times, and once more for the result",
    place="the loop with as_known in with_known_categories; or sales_of, which is run again each time",
    cure="all categories in one pass (categorize with a list of columns), or persist the table first, or give the"
    " categories",
    says=r"again|twice|repeated|more than once|\d+ times|several times|each (column|compute|time)|every column|once for"
    r" each|same (work|tasks|keys|data|files)|recomput|separate comput|one (column )?at a time|passes|as_known"
    r"|categori[sz]e",
    places=(*marked(__file__), function("with_known_categories"), function("sales_of"), r"as_known"),
    cures=r"persist|once\b|one pass|single pass|together|in one (compute|call|go|computation)|categori|dask\.compute"
    r"|keep (it|them|the)|reuse|cache",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "a task takes tenths of a second",
        MORE_MEMORY: "there is enough",
    },
)


def prepare() -> None:
    for number in range(FILES):
        rng = np.random.default_rng(number)
        columns = {name: [f"{name}-{i}" for i in rng.integers(0, 40, ROWS).tolist()] for name in STATICS}
        table = pd.DataFrame({**columns, "sold": rng.poisson(4, ROWS)})
        table.to_csv(folder("sales") / f"part-{number}.csv", index=False)


def sales_of(number: int) -> pd.DataFrame:
    text = (folder("sales") / f"part-{number}.csv").read_text()
    table = pd.read_csv(io.StringIO(text), dtype=dict.fromkeys(STATICS, "str"))  # <- here
    return table.astype(dict.fromkeys(STATICS, "category"))


def sales() -> dd.DataFrame:
    example = pd.DataFrame({name: pd.Series([], dtype="category") for name in STATICS}).assign(
        sold=pd.Series([], dtype="int64")
    )
    return dd.from_map(sales_of, range(FILES), meta=clear_known_categories(example))


def with_known_categories(table: dd.DataFrame) -> dd.DataFrame:
    for name in STATICS:
        table[name] = table[name].cat.as_known()  # <- here
    return table


def spread_of_features(table: dd.DataFrame) -> float:
    """Sum of the squares of how often each category occurs, from a column for each."""
    features = dd.get_dummies(table, columns=list(STATICS), dtype="i1")
    totals = features.sum().compute()  # <- here
    return float((totals.astype("f8") ** 2).sum())


def bad(client: Client) -> float:
    return spread_of_features(with_known_categories(sales()))


def good(client: Client) -> float:
    return spread_of_features(sales().categorize(columns=list(STATICS)))
