"""Strolls of tourists: how long they stayed at places, from the positions of their phones.

source: https://targomo.medium.com/how-we-learned-to-love-dask-and-achieved-a-40x-speedup-aa14e72d99c0
date:   2021-11-29
seen:   stays of each user from their positions, independent of all other users: the workers sent data to each other
        most of the time, and ran out of memory.
cause:  applying a function to the groups of a column, which is not the index, moves all rows between the partitions,
        although all rows of a user are in one partition already.
cure:   group within each partition, by map_partitions, which moves nothing.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    LONGER_TASKS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
FILES = 24
TOURISTS = 60
POSITIONS = scaled(6_000)

EXPECTED = Expected(
    cause="applying a function to the groups shuffles all rows, although each tourist's are in one partition",
    place="the line of groupby and apply, or that of the compute",
    cure="group within each partition, by map_partitions, or by an index with known divisions",
    says=r"shuffl|(rows|data|partitions?).{0,40}(mov|exchang|rearrang|transfer|redistribut|repartition)|transfer"
    r"|communicat",
    places=(*marked(__file__),),
    cures=r"map_partitions|partition.?wise|(within|inside|in) (each|its|the|a|one) (partition|file)|\bindex\b|divisions"
    r"|without (a )?shuffl|avoid.{0,30}shuffl|already|sorted",
    never={
        COMPUTED_AGAIN: "each file is read once",
        LONGER_TASKS: "the size of the tasks is not the fault",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def prepare() -> None:
    place = folder("strolls")
    rng = np.random.default_rng(40)
    for number in range(FILES):
        tourist = np.repeat(np.arange(TOURISTS) + number * TOURISTS, POSITIONS)
        table = pd.DataFrame({"tourist": tourist})
        table["second"] = np.tile(np.arange(POSITIONS) * 20, TOURISTS)
        for name in ("east", "north", "height", "accuracy", "speed", "battery"):
            table[name] = rng.normal(size=len(table)).astype("float32")
        table.to_parquet(place / f"{number:03d}.parquet", index=False)


def stay(track: pd.DataFrame) -> float:
    """Seconds that a tourist spent slow and well located."""
    slow = (track["speed"].abs() < 0.3) & (track["accuracy"].abs() < 1.0) & (track["battery"] > -2.0)
    there = np.hypot(track["east"], track["north"]) + track["height"].abs() < 3.0
    return float(track["second"].diff().where(slow & there, 0.0).sum())


def stays(tracks: pd.DataFrame) -> pd.Series:
    return tracks.groupby("tourist").apply(stay)


def bad(client: Client) -> float:
    tracks = dd.read_parquet(folder("strolls"))
    stayed = tracks.groupby("tourist").apply(stay, meta=(None, "float64"))  # <- here
    return float(stayed.sum().compute())  # <- here


def good(client: Client) -> float:
    tracks = dd.read_parquet(folder("strolls"))
    return float(tracks.map_partitions(stays, meta=(None, "float64")).sum().compute())
