"""Heights of tides are interpolated for each time in a column, one by one.

source: dask/dask issue 5160
date:   2019-07-26
seen:   interpolation of a column of a Dask dataframe, with apply of a function of NumPy, is very slow, compared with
        the same function on an array of the same length without Dask.
cause:  apply calls the function once for each value: each call converts the table of knots anew, and has the cost of
        a call of Python and NumPy, for a single number.
cure:   give the function whole partitions (map_partitions), as it takes arrays.
"""

from __future__ import annotations

import math

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
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
TIMES = scaled(240_000)
KNOTS = 1_000

EXPECTED = Expected(
    cause="height is called for each single value of the column, from a loop in Python, though it could take them"
    " all at once",
    place="height, or the apply() in bad",
    cure="call it with whole partitions: map_partitions",
    says=r"(each|every|single|per) (value|row|element|number|item|call)|(value|row|element|one) by (value|row"
    r"|element|one)|\bapply\b"
    r"|(many|small|tiny|\d+) calls|called .{0,30}times|times\b.{0,20}called|python (loop|code|speed|function)"
    r"|\bloop\b|one at a time"
    r"|\binterp\b|convert|asarray|\blists?\b",
    places=(*marked(__file__), function("height"), function("bad"), function("apply")),
    cures=r"map_partitions|vectori[sz]|whole (column|array|series|partition)|at once|arrays?\b|without (a "
    r"|the )?(loop|apply)"
    r"|instead of (the |an )?(apply|loop)|fewer calls|one call|once\b|together",
    never={
        MORE_WORKERS: "the work itself is the waste",
        LONGER_TASKS: "they are long enough",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each is computed once",
    },
)

HOURS = [24.0 * knot / KNOTS for knot in range(KNOTS + 1)]
HEIGHTS = [2.0 * math.sin(hour / 1.98) + 0.4 * math.sin(hour / 3.9) for hour in HOURS]


def height(hour: float) -> float:
    return float(np.interp(hour, HOURS, HEIGHTS))  # <- here


def heights(hours: pd.Series) -> pd.Series:
    return pd.Series(np.interp(hours, HOURS, HEIGHTS), index=hours.index, name="height")


def hours_of() -> dd.Series:
    seen = pd.DataFrame({"hour": np.random.default_rng(3).uniform(0.0, 24.0, TIMES)})
    table: dd.DataFrame = dd.from_pandas(seen, npartitions=8)
    hours: dd.Series = table["hour"]
    return hours


def bad(client: Client) -> float:
    return float(hours_of().apply(height, meta=("height", "f8")).sum().compute())  # <- here


def good(client: Client) -> float:
    return float(hours_of().map_partitions(heights, meta=("height", "f8")).sum().compute())
