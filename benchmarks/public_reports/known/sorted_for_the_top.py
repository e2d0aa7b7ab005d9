"""A table is sorted as a whole, to have its first rows.

source: dask-contrib/dask-sql pull request 893 (ORDER BY with LIMIT makes a full sort); dask/dask-expr pull request 824
        (sort_values().head() that still shuffles); dask/dask issue 317 (a sort is not what is wanted)
date:   2022-10-26 (the others 2024-01-31 and 2015-06-17)
seen:   asking for the top rows by a column takes minutes and moves the whole table between the workers.
cause:  sort_values() computes quantiles of the column (a first pass over all data), and then shuffles all rows; of the
        sorted table all but a few rows are thrown away.
cure:   the top of each partition first, and the top of these (nlargest / nsmallest, or the same by map_partitions).
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
PARTITIONS, ROWS, TOP = 60, scaled(260_000), 100

EXPECTED = Expected(
    cause="sort_values computes twice (quantiles, then a shuffle of all rows between the partitions), of which"
    " only the"
    " first hundred rows are used",
    place="the sort_values() (or the compute of what it makes); its shuffle tasks; runs computed twice",
    cure="nlargest, or the largest of each partition and then of these",
    says=r"sort|shuffl|quantile|all.to.all|(twice|again|two times|2 times|computed)|moved|transfer|sent|split"
    r"|exchang|only .{0,20}rows|head\b",
    places=(*marked(__file__), r"sort|shuffle|quantile|head|p2p|split", function("bad"), function("runs")),
    cures=r"nlargest|nsmallest|top.?k|topk|each partition|partial|map_partitions|persist|without (the )?sort"
    r"|instead of (a )?sort|(only|just|fewer) .{0,20}(rows|columns)"
    r"|reduc|before (the )?(sort|shuffl)|avoid (the )?(sort|shuffl)|set_index|\bonce\b",
    never={
        MORE_WORKERS: "the work is needless",
        MORE_MEMORY: "there is enough",
        LONGER_TASKS: "a task takes a tenth of a second and more",
        HOLDS_GIL: "one thread a worker",
    },
)


def runs(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    seconds = rng.gamma(4, 900, ROWS)
    clubs = pd.Series(pd.Categorical.from_codes(rng.integers(0, 800, ROWS), [f"club {club}" for club in range(800)]))
    return pd.DataFrame(
        {
            "seconds": seconds,
            "runner": rng.integers(0, 5_000_000, ROWS),
            "age": rng.integers(16, 80, ROWS),
            "club": clubs.astype("string[pyarrow]"),
        }
    )


def all_runs() -> dd.DataFrame:
    return dd.from_map(runs, range(PARTITIONS), meta=runs(0).head(0))


def checked(top: pd.DataFrame) -> float:
    return float(top["seconds"].sum() + top["age"].sum() + top["club"].str.len().sum() + top["runner"].sum() / 1e6)


def bad(client: Client) -> float:
    ordered = all_runs().sort_values(["seconds", "runner"])  # <- here
    return checked(ordered.head(TOP, npartitions=-1))  # <- here


def first(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.nsmallest(TOP, "seconds")


def good(client: Client) -> float:
    some = all_runs().map_partitions(first).compute()
    return checked(some.sort_values(["seconds", "runner"]).head(TOP))
