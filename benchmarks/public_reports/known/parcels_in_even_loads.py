"""Parcels of depots are read from text, brought into loads of even size, and their postage is added up.

source: dask/dask pull request 4416, which came from a question on Stack Overflow (44657631); the same for bags, with a
        warning of the cost: dask/dask pull request 6371
date:   2019-01-22 (6371: 2020-08-06)
seen:   partitions are wanted by size in bytes, which is not known before they are computed; so asking for it starts a
        computation of everything that comes before it, which may be expensive.
cause:  repartition(partition_size=...) reads and parses all files to measure the partitions, throws the data away, and
        does so again where a later step asks for a size once more; then all is read for the result.
cure:   give a number of partitions instead, or read blocks of the right size in the first place, or persist first.
"""

from __future__ import annotations

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
DEPOTS, PARCELS, LOADS = scaled(28), 350_000, 8
ZONES = 40

EXPECTED = Expected(
    cause="repartition by size computes all that comes before it in order to measure the partitions, twice, so"
    " files are"
    " read and parsed several times",
    place="the repartition in by_size, or the reading of a depot that is done again, or the computation in postage",
    cure="repartition(npartitions=...), or persist before, or choose the size when reading",
    says=r"partition_size|memory_usage|measur|(twice|again|repeated(ly)?|more than once|several times|\d+ times"
    r"|times over)"
    r"|re-?(read|comput|pars|load|run)\w*|(size|bytes) of (the |each )?partitions|same (tasks|work|files|data)"
    r"|computes? (everything|all|the whole)",
    places=(
        *marked(__file__),
        function("by_size"),
        function("parcels_of_depot"),
        function("postage"),
        function("repartition"),
    ),
    cures=r"npartitions|persist|once\b|number of partitions|instead of (partition_size|a size)|without"
    r" (partition_size|the"
    r" size|measuring)|when reading|keep|blocksize",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
    },
)


def prepare() -> None:
    place = folder("parcels")
    for depot in range(DEPOTS):
        rng = np.random.default_rng([6, depot])
        table = pa.table(
            {
                "parcel": np.arange(PARCELS) + depot * PARCELS,
                "zone": rng.integers(0, ZONES, PARCELS),
                "grams": rng.gamma(2.0, 900.0, PARCELS).round(1),
                "length": rng.uniform(5, 120, PARCELS).round(2),
                "width": rng.uniform(5, 60, PARCELS).round(2),
                "height": rng.uniform(1, 60, PARCELS).round(2),
                "sent": np.datetime64("2024-01-01T00:00:00") + rng.integers(0, 3e7, PARCELS).astype("m8[s]"),
            }
        )
        pyarrow.csv.write_csv(table, place / f"depot_{depot:02}.csv")


def parcels_of_depot(file: Path) -> pd.DataFrame:
    return pd.read_csv(file, parse_dates=["sent"])


def parcels() -> dd.DataFrame:
    files = sorted(folder("parcels").glob("*.csv"))
    meta = pd.read_csv(files[0], nrows=5, parse_dates=["sent"]).iloc[:0]
    return dd.from_map(parcels_of_depot, files, meta=meta)


def by_size(frame: dd.DataFrame) -> dd.DataFrame:
    return frame.repartition(partition_size="16MB")  # <- here


def by_number(frame: dd.DataFrame) -> dd.DataFrame:
    return frame.repartition(npartitions=min(LOADS, frame.npartitions))


def postage(even: bool) -> float:
    """Postage of all heavy parcels."""
    load = by_size if even else by_number
    sent = load(parcels())  # <- here
    heavy = sent[sent.grams > 800]
    heavy = load(heavy.assign(litres=heavy.length * heavy.width * heavy.height / 1000))  # <- here
    return float((heavy.litres * 0.02 + heavy.grams * 0.001 + heavy.zone * 0.1).sum().compute())  # <- here


def bad(client: Client) -> float:
    return postage(even=True)  # <- here


def good(client: Client) -> float:
    return postage(even=False)
