"""A table is stored as thousands of small Parquet files.

source: dask/dask issues 4701, 5272, 6376
date:   2019-04-15 (5272: 2019-08-13; 6376: 2021-01-15)
seen:   reading a table of 400 MB in 10,000 files takes longer every day, as files are added; with 16,000 files nothing
        starts for an hour, while a task for each file has it read in 3 minutes.
cause:  each file costs a look at its footer, and a task that does next to nothing.
cure:   rewrite the table in fewer, larger files (repartition and to_parquet); or read many of them in each task.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, PROCESSES, TWO_BY_TWO, Expected, folder, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
FILES, ROWS = scaled(500), 300
#: Of the small files in a large one.
TOGETHER = 100

EXPECTED = Expected(
    cause="hundreds of small files: for each the work of opening it, for next to no data",
    place="the read_parquet(), or the compute() of the table",
    cure="fewer and larger files, or many of them in each task",
    says=r"(small|many|hundreds of|thousand\w*|\d[\d,]+) (parquet )?(files|tasks|partitions)"
    r"|(tasks|files) are (too )?(small|short)",
    places=marked(__file__),
    cures=r"(larger|bigger|fewer) (and larger |and bigger )?(files|partitions|row groups)"
    r"|(partitions|files) (bigger|larger)|repartition|aggregate_files|blocksize|in each task|together",
    never={
        COMPUTED_AGAIN: "nothing is",
        PROCESSES: "it is not the threads that are short",
    },
)


def write(place: str, first: int, count: int) -> None:
    numbers = np.arange(first * ROWS, (first + count) * ROWS)
    table = pd.DataFrame(
        {"sensor": numbers % 97, "value": np.sin(numbers), "quality": numbers % 3, "weight": numbers % 7}
    )
    table.to_parquet(folder(place) / f"part-{first:06d}.parquet")


def prepare() -> None:
    for first in range(FILES):
        write("small", first, 1)
    for first in range(0, FILES, TOGETHER):
        write("large", first, min(TOGETHER, FILES - first))


def weighted(table: dd.DataFrame) -> dd.Series:
    good_ones = table[table["quality"] > 0]
    return good_ones["value"].abs() * good_ones["weight"] + good_ones["sensor"]


def bad(client: Client) -> float:
    table = dd.read_parquet(str(folder("small")))  # <- here
    return float(weighted(table).sum().compute())  # <- here


def good(client: Client) -> float:
    table = dd.read_parquet(str(folder("large")))
    return float(weighted(table).sum().compute())
