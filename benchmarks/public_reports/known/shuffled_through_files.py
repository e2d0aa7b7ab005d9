"""Two tables are merged, with shuffling set to go through files on disk.

source: dask/distributed issue 5554
date:   2021-12-01
seen:   a merge on a cluster of one machine takes 50 minutes with the shuffle on disk, and 2 with tasks; the workers
        hardly use their cores meanwhile.
cause:  the pieces of all partitions are appended to files in a store that all workers share, through locks, and read
        from there again, with nothing else to do before all is written.
cure:   another way to shuffle: tasks, or p2p, which is the default.
"""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import MORE_MEMORY, MORE_WORKERS, TWO_BY_ONE, Expected, marked, scaled

CLUSTER = TWO_BY_ONE
PARTITIONS, ROWS = 40, scaled(40_000)

EXPECTED = Expected(
    cause="the shuffle goes through files, many small pieces at a time",
    place="the merge, the shuffle's tasks, or the computation",
    cure="shuffle by p2p or tasks",
    says=r"shuffl|disk|partd|file|write|append|lock|merge|I/O|barrier|storage",
    places=(*marked(__file__), r"shuffle|merge|partd|barrier|collect|disk"),
    cures=r"p2p|tasks|shuffle|broadcast|disk|set_index|memory|storage|method|faster",
    never={
        MORE_WORKERS: "those there are wait for the files",
        MORE_MEMORY: "there is enough: nothing had to go to disk",
    },
)


def left(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    return pd.DataFrame({"key": rng.integers(0, PARTITIONS * ROWS, ROWS), "one": rng.random(ROWS)})


def right(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    keys = rng.permutation(ROWS) * PARTITIONS + number
    return pd.DataFrame({"key": keys, "other": rng.random(ROWS)})


def merged(method: str) -> float:
    with dask.config.set({"dataframe.shuffle.method": method}):  # <- here
        table = dd.from_map(left, range(PARTITIONS), meta=left(0).head(0))
        other = dd.from_map(right, range(PARTITIONS), meta=right(0).head(0))
        both = table.merge(other, on="key")  # <- here
        return float((both["one"] * both["other"]).sum().compute())  # <- here


def bad(client: Client) -> float:
    return merged("disk")


def good(client: Client) -> float:
    return merged("p2p")
