"""Swells of storms at a buoy, cut out of a record of a file for each quarter of an hour.

source: dask/dask issue 11260
date:   2024-07-29
seen:   some fifteen rows by loc, computed for each of many events, took up to 22 seconds each from a table with a
        partition for each of very many files, and longer the more files the table had.
cause:  each compute prepares the graph of the whole table on the client to find the one or two partitions it needs, and
        the loop does so for each event.
cure:   select all events first, and compute them together.
"""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
QUARTERS = scaled(3_000)
ROWS = 40
STORMS = 30
LENGTH = 15

EXPECTED = Expected(
    cause="for each event the client prepares (builds, optimizes) the graph of the table with all its partitions "
    "again, in a loop with a compute for each",
    place="the line of loc and compute in the loop",
    cure="compute all events together (or fewer partitions)",
    says=r"\bgraphs?\b|(client|script).{0,60}(busy|build|prepar|before|waits?)|before (any|the first)"
    r"|(build|optimi[sz]|prepar)\w* (the |a |each )?(graph|expression|collection|quer)|one (result )?(at a time|after)"
    r"|in a loop|compute.{0,40}(times|loop|each|calls?)|too many partitions|many small partitions",
    places=(*marked(__file__),),
    cures=r"together|at once|\bonce\b|one compute|single compute|dask\.compute|all (of them|events|results|tables)"
    r"|fewer (partitions|tasks|computes?|calls)|repartition|larger partitions|out of the loop|outside the loop",
    never={
        MORE_WORKERS: "the workers have nothing to do",
        MORE_MEMORY: "memory is plenty",
        HOLDS_GIL: "tasks are few and short",
    },
)


def prepare() -> None:
    place = folder("buoy")
    heights = np.random.default_rng(3).gamma(2.0, 0.8, (QUARTERS, ROWS)).round(3)
    for number in range(QUARTERS):
        rows = np.arange(number * ROWS, (number + 1) * ROWS)
        waves = pd.DataFrame(
            {"row": rows, "height": heights[number], "period": (4.0 + heights[number] ** 0.5).round(2)}
        )
        waves.to_csv(place / f"{number:05}.csv", index=False)


def record() -> dd.DataFrame:
    """Waves of all quarters of an hour, by their number."""
    ends = [number * ROWS for number in range(QUARTERS)] + [QUARTERS * ROWS - 1]
    waves = dd.read_csv(str(folder("buoy") / "*.csv")).set_index("row", sorted=True, divisions=ends)
    waves["power"] = waves["height"] ** 2 * waves["period"]
    return waves


def storms() -> list[int]:
    """First rows of storms."""
    return [int(first) for first in np.linspace(ROWS, QUARTERS * ROWS - 2 * ROWS, STORMS)]


def summary(storm: pd.DataFrame) -> float:
    return float(storm["power"].max() + storm["height"].mean())


def bad(client: Client) -> float:
    waves = record()
    total = 0.0
    for first in storms():
        storm = waves.loc[first : first + LENGTH].compute()  # <- here
        total += summary(storm)
    return total


def good(client: Client) -> float:
    waves = record()
    cut = [waves.loc[first : first + LENGTH] for first in storms()]
    return sum(summary(storm) for storm in dask.compute(*cut))
