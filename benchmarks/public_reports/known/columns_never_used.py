"""A wide parquet dataset is read as a whole, for two of its columns.

source: dask/dask issue 9104
date:   2022-05-19
seen:   counting over a year of trips takes 75 s when the columns are chosen after read_parquet, and 0.7 s when they are
        given to it.
cause:  all columns are read, decompressed and made into a dataframe by each task, which then drops nearly all of them:
        here the choice is made within a function that Dask cannot look into.
cure:   give columns= to read_parquet, or choose them on the dataframe before the function.

The files are links to one, so they use little disk.
"""

from __future__ import annotations

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
FILES, ROWS, COLUMNS = 36, scaled(200_000), 40

EXPECTED = Expected(
    cause="tasks read all of the columns, of which two are used",
    place="the read_parquet(), or what uses it",
    cure="read the two columns only",
    says=r"columns?\b|read_?parquet|\bread(s|ing)?\b|decompress|parquet|I/O|input",
    places=(*marked(__file__), function("fares"), function("read_parquet")),
    cures=r"columns|fewer|only what|project|less data",
    never={
        LONGER_TASKS: "a task takes half a second",
        MORE_WORKERS: "both cores are busy",
        COMPUTED_AGAIN: "all is read once",
    },
)


def path() -> Path:
    return folder("trips")


def prepare() -> None:
    rng = np.random.default_rng(2015)
    frame = pd.DataFrame({f"detail_{i}": rng.normal(size=ROWS).round(2) for i in range(COLUMNS)})
    frame["distance"] = rng.integers(1, 40, ROWS)
    frame["tip"] = rng.integers(0, 9, ROWS)
    first = path() / "trips-00.parquet"
    frame.to_parquet(first, compression="gzip", compression_level=1)
    for number in range(1, FILES):
        (path() / f"trips-{number:02d}.parquet").hardlink_to(first)


def fares(frame: pd.DataFrame) -> pd.Series:
    return 3 * frame["distance"] + frame["tip"]


def bad(client: Client) -> float:
    trips = dd.read_parquet(path())  # <- here
    total = trips.map_partitions(fares, meta=(None, "i8")).sum()  # <- here
    return float(total.compute())  # <- here


def good(client: Client) -> float:
    trips = dd.read_parquet(path(), columns=["distance", "tip"])
    return float(trips.map_partitions(fares, meta=(None, "i8")).sum().compute())
