"""Surveys of barges, in the order of their hulls.

source: dask/dask pull request 8223 (a comment of a user)
date:   2021-11-05
seen:   an index was set on a large table, for a groupby on it: this took all of the machine's memory, and did not end.
        With the new way of shuffling it took a tenth of the memory, and half an hour.
cause:  a shuffle by tasks keeps all of the table in memory, in very many small pieces; what does not fit is spilled.
cure:   the shuffle that goes through the disk and has few tasks (p2p).
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import MORE_WORKERS, PROCESSES, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = {"n_workers": 2, "threads_per_worker": 2, "memory_limit": "600MiB"}
YEARS = scaled(160)
SURVEYS = 28_000

EXPECTED = Expected(
    cause="the shuffle by tasks of set_index has thousands of small tasks, and keeps and spills the whole table",
    place="the line of set_index, or that of compute",
    cure="shuffle_method='p2p'",
    says=r"shuffl|spill|set_index|(to|from) disk|(out|short) of memory|memory (is |was )?(full|short|pressure)|paused",
    places=(*marked(__file__),),
    cures=r"p2p|shuffle_method|shuffle.method|(avoid|without|skip|no) .{0,30}(shuffle|set_index)|sorted=True|divisions"
    r"|memory|(smaller|fewer|larger|bigger) (partitions|chunks)|groupby|columns",
    never={
        PROCESSES: "the tasks do not wait for the GIL",
        MORE_WORKERS: "there are no more cores or memory",
    },
)


def surveys_of_year(year: int) -> pd.DataFrame:
    rng = np.random.default_rng(year)
    measures = {f"plate {plate}": rng.random(SURVEYS) for plate in range(10)}
    return pd.DataFrame({"hull": rng.integers(1_000_000_000, size=SURVEYS), **measures})


def thinnest(surveys: pd.DataFrame) -> float:
    """Sum of the thinnest plate of each survey."""
    return float(surveys.min(axis=1).sum())


def by_hull(method: str) -> float:
    surveys = dd.from_map(surveys_of_year, range(YEARS))
    ordered = surveys.set_index("hull", shuffle_method=method)  # <- here
    return float(ordered.map_partitions(thinnest, meta=(None, "f8")).sum().compute())  # <- here


def bad(client: Client) -> float:
    return by_hull("tasks")  # <- here


def good(client: Client) -> float:
    return by_hull("p2p")
