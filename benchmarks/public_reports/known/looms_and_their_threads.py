"""Lengths of cloth are summed up by loom, pattern, dyer ...: columns of text, in one process with threads.

source: dask/dask issue 1052
date:   2016-03-17
seen:   sums by eight columns of categories use a quarter of the cores of a laptop, and no more.
cause:  the columns are Python objects: to group by them takes hashes of strings one by one, holding the GIL, in each of
        the eight groupbys.
cure:   make them categories (once, where they are read); or processes instead of threads.
"""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_MEMORY, Expected, function, marked, scaled

CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
NEEDS = ("pandas",)
CONFIG = {"dataframe.convert-string": False}
BALES = 12
ROWS = scaled(700_000)
COLUMNS = tuple(f"{what}_of_{when}" for what in ("loom", "pattern", "dyer", "yarn") for when in ("warp", "weft"))
NAMES = tuple(f"workshop in the street of number {n:03}" for n in range(200))

EXPECTED = Expected(
    cause="groupbys on columns of Python strings, which hold the GIL, so that two threads are not faster than one",
    place="the groupby(), the compute() of them all, or the function that makes the table",
    cure="categories instead of objects; processes instead of threads",
    says=r"\bGIL\b|object|strings?\b|categor|text|one (thread|core) at a time|threads? (wait|block)|factori[sz]|hash",
    places=(*marked(__file__), function("bale_of")),
    cures=r"categor|process|pyarrow|arrow|codes|integers?|numbers|workers with one thread|one thread (per|each)",
    never={LONGER_TASKS: "the tasks are long", MORE_MEMORY: "memory is ample"},
)


def bale_of(number: int, dtype: str = "object") -> pd.DataFrame:
    """Rows of a bale, as the workshops wrote them."""
    rng = np.random.default_rng(number)
    codes = {column: rng.integers(0, len(NAMES), ROWS) for column in COLUMNS}
    metres = rng.random(ROWS)
    if dtype == "category":
        columns = {name: pd.Categorical.from_codes(values, list(NAMES)) for name, values in codes.items()}
    else:
        names = np.array(NAMES, dtype=object)
        columns = {name: names[values] for name, values in codes.items()}
    return pd.DataFrame({**columns, "metres": metres})


def bales(dtype: str) -> dd.DataFrame:
    cloth: dd.DataFrame = dd.from_map(bale_of, range(BALES), dtype=dtype, meta=bale_of(0, dtype).head(0))
    return cloth


def largest_sums(cloth: dd.DataFrame) -> float:
    sums = [cloth.groupby(column, observed=True)["metres"].sum() for column in COLUMNS]  # <- here
    return float(sum(part.max() for part in dask.compute(*sums)))  # <- here


def bad(client: Client) -> float:
    return largest_sums(bales("object"))  # <- here


def good(client: Client) -> float:
    return largest_sums(bales("category"))
