"""Counts of pressure gauges on the sea floor are turned to heights of the tide, by a table of calibration.

source: dask/dask issue 5160
date:   2019-07-26
seen:   interpolation in a table by the apply of a column is very slow, compared with the same function on an array.
cause:  apply calls np.interp for each value by itself; a call has a fixed cost that is a hundred times that of one
        value.
cure:   map_partitions: one call for all values of a partition.
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
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
PARTS, ROWS = scaled(64), 200_000
COUNTS = np.linspace(0, 1_000_000, 1_000)
HEIGHTS = np.sqrt(COUNTS) + np.sin(COUNTS / 40_000)
META = pd.DataFrame({"gauge": pd.Series(dtype=int), "count": pd.Series(dtype=float)})

EXPECTED = Expected(
    cause="apply calls a Python function, and np.interp in it, for each single value",
    place="the line with apply in tide_bad; the function height that it calls for each value",
    cure="np.interp on all values of a partition, by map_partitions",
    says=r"\bapply\b|(each|every|per|single|one) (value|row|element|item|number|call|scalar)|row by row|value by"
    r" value"
    r"|element.?wise|(many|millions? of|\d+|small|short) (\w+ )?calls|python (loop|function|code)|called"
    r" .{0,40}(times|often|for)"
    r"|not vectori[sz]|interp|scalar",
    places=(*marked(__file__), function("height"), function("of_gauge"), function("interp"), r"\bapply\b"),
    cures=r"vectori[sz]|map_partitions|whole (array|column|partition|series|block)|at once|all (the )?values|numpy"
    r"|array"
    r"|fewer calls|one call|once (for|per)|column",
    never={
        MORE_WORKERS: "both cores are busy with needless work",
        MORE_MEMORY: "there is enough",
        PROCESSES: "they have one thread each",
        LONGER_TASKS: "tasks take half a second",
        COMPUTED_AGAIN: "each part is computed once",
    },
)


def part(number: int) -> pd.DataFrame:
    rng = np.random.default_rng([6, number])
    return pd.DataFrame({"gauge": rng.integers(0, 9, ROWS), "count": rng.uniform(0, 1_000_000, ROWS)})


def counts() -> dd.DataFrame:
    return dd.from_map(part, range(PARTS), meta=META)


def height(count: float) -> float:
    """Height of the tide at a count."""
    return float(np.interp(count, COUNTS, HEIGHTS))  # <- here


def heights(counts: pd.Series) -> pd.Series:
    return pd.Series(np.interp(counts.to_numpy(), COUNTS, HEIGHTS), index=counts.index, name="height")


def tides(by_gauge: pd.Series) -> float:
    """A number for the mean heights at all gauges."""
    by_gauge = by_gauge.sort_index()
    return float((by_gauge * np.arange(1, len(by_gauge) + 1)).sum())


def bad(client: Client) -> float:
    table = counts()
    table = table.assign(height=table["count"].apply(height, meta=("height", float)))  # <- here
    return tides(table.groupby("gauge")["height"].mean().compute())  # <- here


def good(client: Client) -> float:
    table = counts()
    table = table.assign(height=table["count"].map_partitions(heights, meta=("height", float)))
    return tides(table.groupby("gauge")["height"].mean().compute())
