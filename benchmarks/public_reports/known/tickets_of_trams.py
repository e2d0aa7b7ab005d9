"""Tickets of trams are read from many text files, and the fares are summed by stop.

source: dask/dask-tutorial issue 136
date:   2019-11-12
seen:   the mean delay of flights by airport, from CSV files with dates in several columns, took 6.5 s with threads of
        one process, 3.9 s with a plain loop over the files.
cause:  reading text into Python objects holds the GIL, so that threads of one process do it one at a time.
cure:   processes of one thread each.
"""

from __future__ import annotations

from datetime import datetime

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    TWO_BY_ONE,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = {"n_workers": 1, "threads_per_worker": 4}
GOOD_CLUSTER = TWO_BY_ONE
FILES = 16
ROWS = scaled(70_000)

EXPECTED = Expected(
    cause="four threads of one process parse text in Python, and the GIL lets one of them at a time",
    place="read_csv, or the function that makes dates",
    cure="more processes with fewer threads each, or another way to parse the dates",
    says=r"\bGIL\b|global interpreter lock|interpreter|Python code|pure Python",
    places=(*marked(__file__), r"read_csv", r"\bwhen\b", r"\bread_tickets\b"),
    cures=r"process|fewer threads|one thread|threads_per_worker|vectori[sz]|date_format|to_datetime|parquet|"
    r"(numpy|pandas|compiled)",
    never={
        LONGER_TASKS: "tasks of half a second are long enough",
        COMPUTED_AGAIN: "every file is read once",
        r"(?im)(^|[.:;])\s*(add|use|start|try) (more|further) threads": "more threads wait for the same GIL",
    },
)


def paths() -> list[str]:
    return [str(folder("tickets_of_trams") / f"week-{i:02d}.csv") for i in range(FILES)]


def prepare() -> None:
    """Write a file of tickets for each week."""
    for i, path in enumerate(paths()):
        rng = np.random.default_rng(i)
        minutes = rng.integers(0, 7 * 24 * 60, ROWS)
        pd.DataFrame(
            {
                "sold": (pd.Timestamp("2024-01-01") + pd.to_timedelta(minutes, unit="min")).strftime("%d/%m/%Y %H:%M"),
                "stop": np.char.add("stop-", rng.integers(0, 40, ROWS).astype(str)),
                "fare": rng.integers(100, 900, ROWS) / 100,
            }
        ).to_csv(path, index=False)


def when(text: str) -> int:
    sold = datetime.strptime(text, "%d/%m/%Y %H:%M")
    return sold.hour


def fares_by_stop() -> float:
    tickets = dd.read_csv(paths(), converters={"sold": when}, blocksize=None)  # <- here
    early = tickets[tickets["sold"] < 9]
    return float(early.groupby("stop")["fare"].sum().compute().max())


def bad(client: Client) -> float:
    return fares_by_stop()


def good(client: Client) -> float:
    return fares_by_stop()
