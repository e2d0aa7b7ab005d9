"""The melt at snow stakes, from the two columns of a table.

source: dask/dask issue 5994
date:   2020-03-09
seen:   a formula of two columns, applied to a table of 1.5 million rows, took 22 s in pandas and 43 s in Dask with
        ten partitions, although all processes were used.
cause:  each partition calls a Python function for each row (apply with axis=1), which first makes a Series of the row.
cure:   write the formula with whole columns, which takes milliseconds.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
PARTS = 10
ROWS = scaled(240_000)

EXPECTED = Expected(
    cause="a Python function is called for each row, by DataFrame.apply with axis=1",
    place="the line with apply, or the functions melt and melted",
    cure="compute with whole columns (vectorize)",
    says=r"(each|every|per|single|for a) (row|element|value)|row.by.row|\brows\b.{0,30}(one|Python)|\bapply\b|axis=1"
    r"|row.?wise",
    places=(*marked(__file__), function("melt"), function("melted")),
    cures=r"vectori[sz]|whole (column|array)s?|columns? at once|NumPy|(on|with|of) (the )?columns|array operation",
    never={
        COMPUTED_AGAIN: "the table is used once",
        LONGER_TASKS: "tasks take a second each",
    },
)


def readings(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    return pd.DataFrame({"warmth": rng.normal(2.0, 3.0, ROWS), "sun": rng.random(ROWS)})


def melt(warmth: float, sun: float) -> float:
    return sun * (warmth**2 + 1.0)


def melted(table: pd.DataFrame) -> pd.Series:
    return table.apply(lambda row: melt(row["warmth"], row["sun"]), axis=1)  # <- here


def stakes() -> dd.DataFrame:
    return dd.from_map(readings, range(PARTS), meta=readings(0).iloc[:0])


def bad(client: Client) -> float:
    return float(stakes().map_partitions(melted, meta=(None, "f8")).sum().compute())


def good(client: Client) -> float:
    table = stakes()
    return float(melt(table["warmth"], table["sun"]).sum().compute())
