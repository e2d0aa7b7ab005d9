"""The weights of bee hives, kept in a folder for each day, of which some days are wanted.

source: dask/dask issue 7090
date:   2023-02-08
seen:   a table in 27,000 parts, partitioned by day among others, was read with a filter on the day; just making the
        table, without computing anything, took more than ten minutes.
cause:  to apply the filter, the metadata of all files are read, as only then it is known which of them are needed.
cure:   name the wanted folders (patterns of their paths), so that only their files are looked at.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
DAYS = scaled(1500)
WANTED = range(40, 60)
HIVES, SCALES = 30, 40

EXPECTED = Expected(
    cause="read_parquet reads the metadata of all files, on the client, before anything runs",
    place="the line of read_parquet",
    cure="give read_parquet the paths of the wanted days only",
    says=r"metadata|footers?|statistics|read_parquet|(client|script).{0,60}(busy|read|list|itself)"
    r"|(all|many|small) files|\d+ (small )?files|before (any|the first)",
    places=(*marked(__file__), r"read_parquet"),
    cures=r"paths?\b|fewer (and larger )?files|larger files|only .{0,30}(files|days|folders|needed|wanted)|metadata"
    r"|statistics|calculate_divisions|pattern|glob",
    never={
        COMPUTED_AGAIN: "each file's rows are read once",
        MORE_WORKERS: "the client has the work",
    },
)


def apiary(day: int | str) -> str:
    return str(folder("hives_by_the_day") / "weights" / f"day={day}")


def prepare() -> None:
    """Write a file of a table in the folder of each day."""
    for day in range(DAYS):
        rng = np.random.default_rng(day)
        place = folder(f"hives_by_the_day/weights/day={day}")
        table = pd.DataFrame(rng.random((HIVES, SCALES)), columns=[f"scale-{i}" for i in range(SCALES)])
        table.to_parquet(place / "part.0.parquet")


def bad(client: Client) -> float:
    place = str(folder("hives_by_the_day") / "weights")
    days = [("day", ">=", WANTED[0]), ("day", "<=", WANTED[-1])]
    return float(dd.read_parquet(place, filters=days)["scale-7"].sum().compute())  # <- here


def good(client: Client) -> float:
    paths = [f"{apiary(day)}/part.0.parquet" for day in WANTED if day < DAYS]
    return float(dd.read_parquet(paths)["scale-7"].sum().compute())
