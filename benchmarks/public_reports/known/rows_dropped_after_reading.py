"""A few days of a large folder of Parquet files are selected by query.

source: dask/dask issue 3892; of the same kind: dask/dask issues 3168 and 7090
date:   2018-08-20
seen:   reading many files and cutting them down by query takes several times as long as a loop over the files.
cause:  all files are read and decoded, and then nearly all rows are dropped: what query wants is not known to the
        reader, which could tell by the statistics in each file that there is nothing for it.
cure:   filters=, with which files (and row groups) without such rows are not read.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_ONE, Expected, folder, marked, scaled

CLUSTER = TWO_BY_ONE
DAYS, ROWS, WANTED = 16, scaled(1_600_000), (12, 13)

EXPECTED = Expected(
    cause="all files are read, though two of them have the rows",
    place="the read_parquet, the query, or the computation",
    cure="filters= of read_parquet, or fewer files",
    says=r"read|parquet|filter|drop|rows|query|select|partitions (that|which|with)|unused|thrown|decod|I/O|disk",
    places=(*marked(__file__), r"parquet|query"),
    cures=r"filter|fewer (files|rows|partitions|columns)|only (the|those|what)|push|skip|partition|statistics|earlier"
    r"|before|columns|prun",
    never={
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "a task takes tenths of a second",
    },
)


def prepare() -> None:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({f"sensor{number}": rng.normal(size=ROWS).round(2) for number in range(8)})
    for column in ("place", "kind", "state"):
        frame[column] = rng.integers(0, 5_000, ROWS).astype(str)
    for day in range(DAYS):
        frame.assign(day=day).to_parquet(folder("days") / f"day-{day:02d}.parquet", compression="zstd")


def bad(client: Client) -> float:
    table = dd.read_parquet(str(folder("days")))  # <- here
    table = table.query(f"{WANTED[0]} <= day <= {WANTED[1]}")  # <- here
    values = table.map_partitions(deviation, meta=(None, "f8"))
    return float(values.sum().compute())  # <- here


def deviation(frame: pd.DataFrame) -> pd.Series:
    sensors = frame[[f"sensor{number}" for number in range(8)]]
    return sensors.std(axis=1)[frame["place"] != frame["kind"]]


def good(client: Client) -> float:
    filters = [("day", ">=", WANTED[0]), ("day", "<=", WANTED[1])]
    table = dd.read_parquet(str(folder("days")), filters=filters)
    values = table.map_partitions(deviation, meta=(None, "f8"))
    return float(values.sum().compute())
