"""High waters are cut out of a long table of a gauge, which has a part for each day.

source: dask/dask issue 11260
date:   2024-07-29
seen:   taking slices of some 15 rows out of a table with as many partitions as there were files, in a loop over events,
        took 22 s for each compute() with query planning, and less than a second without.
cause:  each slice is a computation of its own, for which the client optimizes and sends the graph of all partitions,
        though it needs one or two of them. The workers have next to nothing to do, and wait for the client meanwhile.
cure:   take the slices from the parts that they are in, and compute all events at once.
"""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.delayed import Delayed
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
DAYS = 1200
ROWS = 144
EVENTS = scaled(35)

EXPECTED = Expected(
    cause="the client makes 35 small computations, one after the other, each with the graph of all 1,200 partitions",
    place="compute() in the loop over the events",
    cure="one compute() for all events, or only the parts that an event is in",
    says=r"one after the other|one by one|one at a time|\d+ (small |separate )?(computations|graphs|computes)"
    r"|many (small |separate )?(computations|graphs|computes)|wait\w* for each|in turn|for (the|your) client|sequential"
    r"|client .{0,60}(graph|optimi[sz])|(build|mak|prepar|send|optimi[sz])\w* .{0,30}graph"
    r"|graphs? .{0,40}(large|big|tasks)",
    places=(*marked(__file__), r"\bsum_of_peaks\b"),
    cures=r"one (call|compute|graph)|at once|in one|together|fewer (computations|partitions|tasks)|single"
    r"|out of the loop|persist|smaller graph|collect",
    never={
        LONGER_TASKS: "the tasks that matter are few; it is the client that works",
        MORE_WORKERS: "workers wait for the client",
    },
)


def day_of_gauge(day: int) -> pd.DataFrame:
    minutes = np.arange(day * ROWS, (day + 1) * ROWS)
    level = 200 + 30 * np.sin(minutes / 37.0) + 80 * np.sin(minutes / 911.0) ** 8
    return pd.DataFrame({"level": level, "wind": np.cos(minutes / 61.0)}, index=minutes)


def days() -> list[Delayed]:
    return [dask.delayed(day_of_gauge)(day) for day in range(DAYS)]


def events() -> list[tuple[int, int]]:
    starts = np.random.default_rng(7).integers(0, DAYS * ROWS - 20, EVENTS)
    return [(int(start), int(start) + 15) for start in starts]


def peak(part: pd.DataFrame) -> float:
    return float(part["level"].max())


def cut(parts: list[pd.DataFrame], start: int, stop: int) -> float:
    return peak(pd.concat(parts).loc[start:stop])


def sum_of_peaks(table: dd.DataFrame) -> float:
    total = 0.0
    for start, stop in events():
        total += peak(table.loc[start:stop].compute())  # <- here
    return total


def bad(client: Client) -> float:
    divisions = (*range(0, DAYS * ROWS, ROWS), DAYS * ROWS - 1)
    table = dd.from_delayed(days(), meta=day_of_gauge(0), divisions=divisions, verify_meta=False)
    table["gust"] = table["wind"] * 2
    return sum_of_peaks(table)


def good(client: Client) -> float:
    parts = days()
    peaks = [dask.delayed(cut)(parts[start // ROWS : stop // ROWS + 1], start, stop) for start, stop in events()]
    return sum(dask.compute(*peaks))
