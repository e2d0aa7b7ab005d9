"""Logs of shifts overlap by some minutes, and are concatenated in the order of their times, which nobody needs.

source: dask/dask issue 8876
date:   2022-04-01
seen:   very many small tables with known divisions, some of which overlap, become one with dd.concat and
        interleave_partitions=True. The graph has far more tasks than tables, also for those that overlap with no other.
cause:  each table is cut at the boundaries of all the others, and each partition of the result put together from a
        piece of every table, most of them empty: the number of tasks grows with the square of that of tables.
cure:   concatenate them one after the other where the order does not matter, or merge only those that overlap.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SHIFTS = scaled(45)
SECONDS, OVERLAP = 8 * 3_600, 600

EXPECTED = Expected(
    cause="the concatenation cuts all tables at the boundaries of all others and makes a graph of very many tasks",
    place="the call of concat, or the computation of what it makes",
    cure="concatenate without interleaving",
    says=r"interleav|concat|repartition|divisions?|boundar|align|many (\w+ )?tasks|tiny|small tasks|graph|scheduler"
    r"|overhead|empty",
    places=(*marked(__file__), r"concat|repartition|boundary|split|divisions"),
    cures=r"interleav|concat|fewer (tasks|partitions|tables)|unsorted|order|one after the other|(bigger|larger|longer)"
    r"|from_map|delayed|combine|merge",
    never={
        MORE_WORKERS: "the graph is what takes the time, not the work",
        MORE_MEMORY: "the memory suffices",
        HOLDS_GIL: "there is one thread per process",
        LOCK: "no lock is held by anybody",
    },
)


def shift(number: int) -> pd.DataFrame:
    """Log of one shift, whose last minutes are those of the next one too."""
    rng = np.random.default_rng(number)
    first = number * SECONDS
    seconds = np.arange(first, first + SECONDS + OVERLAP)
    return pd.DataFrame({"load": rng.random(len(seconds))}, index=pd.Index(seconds, name="second"))


def tables() -> list[dd.DataFrame]:
    meta = shift(0).head(0)
    return [
        dd.from_map(
            shift,
            [number],
            meta=meta,
            divisions=(number * SECONDS, (number + 1) * SECONDS + OVERLAP - 1),
        )
        for number in range(SHIFTS)
    ]


def bad(client: Client) -> float:
    log = dd.concat(tables(), interleave_partitions=True)  # <- here
    return float((log["load"] ** 2).sum().compute())  # <- here


def good(client: Client) -> float:
    log = dd.concat(tables())
    return float((log["load"] ** 2).sum().compute())
