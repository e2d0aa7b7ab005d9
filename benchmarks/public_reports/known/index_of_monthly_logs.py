"""Logs of an ice-breaker's engine are in a file for each month; one day of them is looked at.

source: dask/dask issue 1848
date:   2016-12-14
seen:   an index for dataframes from CSV files is expensive, even where it is said that they are sorted, though one
        knows exactly which file holds which times.
cause:  set_index(sorted=True) reads all files only to learn the first and last time in each.
cure:   give the divisions, which one knows; then no file is read before a computation asks for it.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
MONTHS, SECONDS, SENSORS = 24, scaled(800_000), 7
DAY = 86_400

EXPECTED = Expected(
    cause="set_index, though sorted, reads all files to find the divisions, of which the result needs one",
    place="the line with set_index in bad",
    cure="pass divisions=, known from the names of the files, or read only the file that is needed, or Parquet files",
    says=r"set_index|division|(first|last|least|lowest|min\w*|max\w*|ends?|range|bound\w*).{0,40}(partition|file"
    r"|index)|all (the )?(files|partitions|data)"
    r"|(every|each|whole) (file|partition|dataset|table)|(read|pars|load)\w*.{0,40}(twice|again|only to|just to"
    r"|needless|all|whole|not needed|csv)"
    r"|read_csv|\bcsv\b|again",
    places=(*marked(__file__), function("bad"), r"set_index|read_csv|divisions"),
    cures=r"divisions|parquet|(only|just|fewer) (the )?(files?|partitions?|columns?)|needed|filter|statistics"
    r"|once\b|persist|without reading",
    never={
        MORE_WORKERS: "both cores are busy with needless work",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        LONGER_TASKS: "tasks take half a second",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def prepare() -> None:
    for month in range(MONTHS):
        rng = np.random.default_rng([9, month])
        columns = {"second": np.arange(SECONDS) + month * SECONDS}
        for sensor in range(SENSORS):
            columns[f"s{sensor}"] = rng.normal(sensor, 1, SECONDS)
        pc.write_csv(pa.table(columns), folder("engine") / f"{month:02}.csv")


def logs() -> dd.DataFrame:
    return dd.read_csv(str(folder("engine") / "*.csv"), blocksize=None)


def of_day(log: dd.DataFrame) -> float:
    """Sum of all sensors on a day in the middle of the second year."""
    first = int(SECONDS * MONTHS * 0.74)
    return float(log.loc[first : first + min(DAY, SECONDS // 8)].sum().compute().sum())


def bad(client: Client) -> float:
    return of_day(logs().set_index("second", sorted=True))  # <- here


def good(client: Client) -> float:
    divisions = [month * SECONDS for month in range(MONTHS)] + [MONTHS * SECONDS - 1]
    return of_day(logs().set_index("second", sorted=True, divisions=divisions))
