"""Prices of parcels are worked out from their size and weight.

source: dask/dask issue 5994
date:   2020-03-09
seen:   a small formula on two columns, by apply() with axis=1 on partitions, took 42 s with Dask and 22 s with pandas,
        for 1.5 million rows.
cause:  apply() with axis=1 makes a Series of each row and calls a Python function with it, which holds the GIL.
cure:   the formula on whole columns.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, LONGER_TASKS, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
PARTS = 12
ROWS = scaled(170_000)

EXPECTED = Expected(
    cause="apply() with axis=1 calls a Python function for each row, which holds the GIL",
    place="apply() in the function of the partitions, or the function of a row",
    cure="the formula on whole columns (NumPy or pandas), without apply()",
    says=r"\bapply\b|row by row|(each|every|per|single) rows?|\brows\b|\bGIL\b|pure Python|Python (code|function|loop)",
    places=(*marked(__file__), r"\bprice_of\b", r"\bpriced\b"),
    cures=r"vectori[sz]|whole (columns|arrays)|columns|numpy|pandas|process|compiled|numba"
    r"|without apply|instead of apply",
    never={
        LONGER_TASKS: "tasks of half a second are long enough",
        COMPUTED_AGAIN: "every partition is made once",
    },
)


def parcels(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    return pd.DataFrame({"side": rng.uniform(5, 60, ROWS), "weight": rng.gamma(2.0, 1.5, ROWS)})


def price_of(row: pd.Series) -> float:
    volume = row["side"] ** 3 / 5000
    return 3.5 + 0.9 * max(volume, row["weight"])


def priced(part: pd.DataFrame) -> pd.DataFrame:
    return part.assign(price=part.apply(price_of, axis=1))  # <- here


def priced_at_once(part: pd.DataFrame) -> pd.DataFrame:
    volume = part["side"] ** 3 / 5000
    return part.assign(price=3.5 + 0.9 * np.maximum(volume, part["weight"]))


def table() -> dd.DataFrame:
    return dd.from_map(parcels, range(PARTS), meta={"side": "f8", "weight": "f8"})


def bad(client: Client) -> float:
    kinds = {"side": "f8", "weight": "f8", "price": "f8"}
    return float(table().map_partitions(priced, meta=kinds)["price"].sum().compute())


def good(client: Client) -> float:
    kinds = {"side": "f8", "weight": "f8", "price": "f8"}
    return float(table().map_partitions(priced_at_once, meta=kinds)["price"].sum().compute())
