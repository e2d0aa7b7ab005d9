"""Weights of beehives on scales, from a folder of daily files for each hive.

source: dask/dask issue 6733
date:   2020-10-14
seen:   a function that reads about a hundred small files with dask.dataframe took minutes when mapped with client.map
        on a cluster of two workers, but seconds when called by itself; num_workers for the compute changed nothing.
cause:  the compute within the task does not use threads of its own: it goes to the same cluster, as hundreds of
        tiny tasks on the same two threads, whose results come back to the task.
cure:   read with pandas in the task.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
HIVES = scaled(20)
DAYS = 40
ROWS = 288

EXPECTED = Expected(
    cause="a task computes a Dask collection: it goes back to the same cluster as many tiny tasks, and the task waits",
    place="the lines of read_csv and compute in the task",
    cure="pandas in the task (no Dask within tasks)",
    says=r"(with)?in (a|the|each|its|their)? ?tasks?\b.{0,80}(comput|submit|client|dask|collection|wait)|nested"
    r"|tasks?.{0,40}(wait(s|ing)? for|submits?|starts?|comput\w+|launch\w*|creat\w+).{0,30}(tasks|collections?"
    r"|graph|results?)"
    r"|(tiny|small|short|many) (\w+ )?tasks|tasks (are|is|were) (too |very |so )?(tiny|small|short|many)",
    places=(*marked(__file__), function("weights_of")),
    cures=r"pandas|without dask|plain|not .{0,40}(with)?in(side)? (a|the) task|outside|from the (client|script)"
    r"|(batch|larger|longer|bigger|fewer)|in the task itself|directly|synchronous|single.threaded",
    never={
        MORE_WORKERS: "the work is overhead",
        MORE_MEMORY: "memory is plenty",
    },
)


def prepare() -> None:
    random = np.random.default_rng(29)
    for hive in range(HIVES):
        place = folder(f"hives/{hive:03}")
        weights = 30.0 + random.standard_normal(ROWS).cumsum() * 0.01
        table = pd.DataFrame({"minute": np.arange(ROWS) * 5, "weight": weights, "inside": 35.0, "outside": np.nan})
        text = table.to_csv(index=False)
        for day in range(DAYS):
            (place / f"{day:03}.csv").write_text(text)


def files_of(hive: int) -> list[str]:
    return sorted(str(file) for file in folder(f"hives/{hive:03}").glob("*.csv"))


def weights_of(files: list[str]) -> float:
    """Mean weight of a hive with the outdoor temperatures that are known."""
    readings = dd.read_csv(files, blocksize=None, dtype="float64")  # <- here
    table = readings.fillna(0.0).compute()  # <- here
    return float(table["weight"].mean() + table["outside"].sum())


def weights_by_pandas(files: list[str]) -> float:
    table = pd.concat([pd.read_csv(file, dtype="float64") for file in files]).fillna(0.0)
    return float(table["weight"].mean() + table["outside"].sum())


def bad(client: Client) -> float:
    futures = client.map(weights_of, [files_of(hive) for hive in range(HIVES)])
    return float(sum(client.gather(futures)))


def good(client: Client) -> float:
    futures = client.map(weights_by_pandas, [files_of(hive) for hive in range(HIVES)])
    return float(sum(client.gather(futures)))
