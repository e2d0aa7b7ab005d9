"""Protocols of parcels are read and cleaned, cut to partitions of some megabytes, and summed up.

source: dask/dask pull request 4416, after a question on Stack Overflow (44657631)
date:   2019-01-22
seen:   partitions should have a certain size in memory; to know how many that makes, something has to be computed.
cause:  repartition(partition_size=...) has to know how large each partition is: all that comes before it is computed,
        with all columns, only to measure it, and later computed once more for the result.
cure:   a number of partitions (npartitions), which needs no measurement, or blocks of the right size on reading; or
        persist before.
"""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
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
FILES, PARCELS = scaled(16), 60_000

EXPECTED = Expected(
    cause="repartition(partition_size=...) computes everything before it to measure the partitions, and it is computed"
    " again for the result",
    place="the calls of repartition in by_megabytes (it takes effect where the result is computed)",
    cure="repartition(npartitions=...), a blocksize on reading, no repartition, or persist before it",
    says=r"repartition|partition_size|memory_usage|measur\w+|(comput|read|evaluat|execut|load|pars|run|clean)\w*\W+(\w+\W+)"
    r"{0,6}(again|twice|once more|repeated|several times|(two|three|\d+) times|more than once|anew)",
    places=(*marked(__file__), function("by_megabytes"), function("cleaned"), function("with_tariffs"), r"repartition"),
    cures=r"npartitions|blocksize|persist|(without|avoid|drop|remove|no|skip)\W+(\w+\W+){0,4}(repartition|partition_size"
    r"|measur)|number of partitions|fixed (number|count)|keep (it|them|the result)|compute (it|them) once|known sizes?"
    r"|parquet",
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
    """Protocols of the parcels, a file each day."""
    place = folder("parcels_by_megabytes")
    for day in range(FILES):
        rng = np.random.default_rng(day)
        pd.DataFrame(
            {
                "parcel": np.arange(PARCELS) + day * PARCELS,
                "depot": rng.integers(0, 40, PARCELS),
                "address": [f"Street {one}, Town {two}" for one, two in rng.integers(0, 999, (PARCELS, 2)).tolist()],
                "grams": rng.integers(50, 30_000, PARCELS),
            }
        ).to_csv(place / f"day-{day:03}.csv", index=False)


def cleaned(parcels: pd.DataFrame) -> pd.DataFrame:
    """Parcels with street and town by themselves."""
    parts = parcels["address"].str.extract(r"^(?P<street>.*?) (?P<number>\d+), Town (?P<town>\d+)$")
    return parcels.assign(number=parts["number"].astype("float64"), town=parts["town"].astype("float64"))


def with_tariffs(parcels: pd.DataFrame) -> pd.DataFrame:
    """Parcels with what they cost."""
    zones = parcels["address"].str.lower().str.replace(r"\d", "", regex=True).str.len()
    return parcels.assign(cents=250 + parcels["grams"] // 100 + (parcels["town"] % 7) * 30 + zones)


def read() -> dd.DataFrame:
    """Protocols as they are read, a partition each file."""
    parcels: dd.DataFrame = dd.read_csv(str(folder("parcels_by_megabytes") / "*.csv"), blocksize=None)
    return parcels


def cents_of(parcels: pd.DataFrame) -> float:
    return float(parcels["cents"].sum())


def total(priced: dd.DataFrame) -> float:
    """What all parcels cost, summed up partition by partition."""
    return float(sum(dask.compute(*[dask.delayed(cents_of)(part) for part in priced.to_delayed()])))  # <- here


def by_megabytes() -> float:
    parcels = read().map_partitions(cleaned)
    parcels = parcels.repartition(partition_size="12MB")  # <- here
    return total(parcels.map_partitions(with_tariffs).repartition(partition_size="15MB"))  # <- here


def by_number() -> float:
    """The same, with a number of partitions that is known."""
    priced = read().map_partitions(cleaned).map_partitions(with_tariffs)
    return total(priced.repartition(npartitions=max(1, FILES // 2)))


def bad(client: Client) -> float:
    return by_megabytes()


def good(client: Client) -> float:
    return by_number()
