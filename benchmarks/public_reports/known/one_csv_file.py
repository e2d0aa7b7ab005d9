"""A dataframe is written to a single CSV file.

source: dask/dask issue 9683
date:   2022-11-22
seen:   to_csv takes as long as with pandas, and does not use the cores there are.
cause:  with single_file=True each partition is appended after the one before: the tasks that format and write are a
        chain, and one core is busy.
cure:   write a file for each partition (and let who reads take them all), or a format that is not text.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_ONE, Expected, folder, marked, scaled

CLUSTER = TWO_BY_ONE
PARTITIONS, ROWS = 12, scaled(60_000)
COLUMNS = ("north", "east", "height", "speed")

EXPECTED = Expected(
    cause="partitions are appended to one file, one after the other",
    place="the to_csv()",
    cure="a file for each partition",
    says=r"one (after|by) (the other|another|one)|one at a time|chain|sequential|serial(?!iz)|in turn|append"
    r"|single.file"
    r"|critical path|depend on (each other|the one before)|\bidle|one (file|core|worker|thread)\b",
    places=marked(__file__),
    cures=r"(file|output)s? (for|per) (each|every|partition)|(many|several|separate|more than one"
    r"|multiple) (files|outputs)"
    r"|single_file=False|without single_file|parquet|\*\.csv|independent",
    never={
        MORE_WORKERS: "one of the two has nothing to do as it is",
        LONGER_TASKS: "a task takes some tenths of a second",
    },
)


def track(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    return pd.DataFrame({name: rng.normal(size=ROWS) for name in COLUMNS})


def tracks() -> dd.DataFrame:
    return dd.from_map(track, range(PARTITIONS), meta=track(0).head(0))


def bad(client: Client) -> float:
    place = folder("one-file")
    tracks().to_csv(str(place / "tracks.csv"), single_file=True, index=False, header=False)  # <- here
    return float((place / "tracks.csv").stat().st_size)


def good(client: Client) -> float:
    place = folder("many-files")
    tracks().to_csv(str(place / "tracks-*.csv"), index=False, header=False)
    return float(sum(file.stat().st_size for file in place.glob("tracks-*.csv")))
