"""Charges for rides on cable cars, by zone and season.

source: https://www.sixt.tech/dask-a-parallel-data-processing-library-in-python
date:   2026-12-01 (seen; its own is not given)
seen:   to go through the rows of a large table, by a loop or by apply, slowed the code down much; the functions that
        pandas has for whole columns were far faster.
cause:  a Python function is called for each row of the table, with a Series made for each.
cure:   compute with whole columns.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
WEEKS = 26
RIDES = scaled(80_000)

EXPECTED = Expected(
    cause="a Python function is called for each row of the tables (apply along rows)",
    place="the line of apply, or the function of a row",
    cure="expressions of whole columns",
    says=r"row by row|row-?wise|(each|every|per|single) row|axis ?= ?1|\bapply\b|(once )?for (each|every) (row"
    r"|value|item)"
    r"|element by element|rows? at a time",
    places=(*marked(__file__), function("charge")),
    cures=r"vectori[sz]|whole (columns?|arrays?|tables?|partitions?)|columns?|map_partitions|\bnumpy\b|np\.where"
    r"|at once",
    never={
        COMPUTED_AGAIN: "each week is used once",
        LONGER_TASKS: "a task takes about a second",
        MORE_MEMORY: "memory is plenty",
    },
)


def rides_of(week: int) -> pd.DataFrame:
    random = np.random.default_rng(week)
    return pd.DataFrame(
        {
            "zones": random.integers(1, 6, RIDES),
            "age": random.integers(3, 90, RIDES),
            "weight": random.normal(70.0, 15.0, RIDES),
            "winter": random.random(RIDES) < 0.4,
        }
    )


def charge(ride: pd.Series) -> float:
    """Charge for a ride."""
    price = 4.5 + 2.2 * ride["zones"]
    if ride["age"] < 16:
        price = price * 0.5
    if ride["winter"]:
        price = price + 3.0
    if ride["weight"] > 90.0:
        price = price + 0.1 * (ride["weight"] - 90.0)
    return float(price)


def charges(rides: dd.DataFrame) -> dd.Series:
    """Charges for all rides."""
    price = 4.5 + 2.2 * rides["zones"]
    price = price.where(rides["age"] >= 16, price * 0.5)
    price = price + 3.0 * rides["winter"].astype("float64")
    return price + 0.1 * (rides["weight"] - 90.0).clip(lower=0.0)


def bad(client: Client) -> float:
    rides = dd.from_map(rides_of, range(WEEKS))
    rides["charge"] = rides.apply(charge, axis=1, meta=("charge", "float64"))  # <- here
    return float(rides.groupby("zones")["charge"].sum().compute().sum())


def good(client: Client) -> float:
    rides = dd.from_map(rides_of, range(WEEKS))
    rides["charge"] = charges(rides)
    return float(rides.groupby("zones")["charge"].sum().compute().sum())
