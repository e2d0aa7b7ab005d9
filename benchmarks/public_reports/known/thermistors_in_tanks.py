"""Resistances of thermistors in fermentation tanks become temperatures, by a table of the manufacturer.

source: dask/dask issue 5160
date:   2019-07-26
seen:   to interpolate a column of a Dask dataframe by NumPy or SciPy through apply is very slow, compared with the same
        function on an array of the same length.
cause:  apply calls the function for each value, which is plain Python, and each call looks at the table anew, though
        the function takes whole arrays.
cure:   call it once for a partition: map_partitions.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
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
TANKS, READINGS, KNOTS = 8, scaled(900_000), 120
META = pd.DataFrame({"resistance": pd.Series(dtype=float)})
RESISTANCES = np.geomspace(200.0, 40_000.0, KNOTS)
TEMPERATURES = 110.0 - 14.0 * np.log(RESISTANCES / 200.0)

EXPECTED = Expected(
    cause="apply calls temperature, and with it np.interp, once for each value instead of once for a column",
    place="the apply, or temperature with its call of np.interp",
    cure="interpolate a whole partition by one call, in map_partitions",
    says=r"apply|(each|every|per|single|one) (value|row|element|reading|number|item|call)s?\b|(row|value|element|one"
    r"|item) by (row|value|element|one|item)|element-?wise|one (at a time|by one)|vectori[sz]|(plain|pure) Python"
    r"|Python (code|loop|function|calls?)|scalars?|many calls|calls? .{0,30}times",
    places=(*marked(__file__), function("temperature"), function("apply"), function("map_infer")),
    cures=r"map_partitions|vectori[sz]|whole (column|array|partition|series)s?|arrays?|at once|one call|once (for|per"
    r"|a)\b|NumPy|without apply|instead of apply|avoid apply|columns?",
    never={
        MORE_WORKERS: "there are two cores",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        LONGER_TASKS: "tasks take a second",
    },
)


def readings(tank: int) -> pd.DataFrame:
    rng = np.random.default_rng([51, tank])
    return pd.DataFrame({"resistance": rng.uniform(300.0, 30_000.0, READINGS)})


def temperature(resistance: float) -> float:
    return float(np.interp(resistance, RESISTANCES, TEMPERATURES))  # <- here


def of_column(resistances: pd.Series) -> pd.Series:
    return pd.Series(np.interp(resistances, RESISTANCES, TEMPERATURES), index=resistances.index)


def resistances() -> dd.Series:
    column: dd.Series = dd.from_map(readings, range(TANKS), meta=META)["resistance"]
    return column


def bad(client: Client) -> float:
    temperatures = resistances().apply(temperature, meta=("temperature", "f8"))  # <- here
    return float(temperatures.mean().compute())  # <- here


def good(client: Client) -> float:
    temperatures = resistances().map_partitions(of_column, meta=("temperature", "f8"))
    return float(temperatures.mean().compute())
