"""Rosters of pilots: how many different routes were flown from each base.

source: https://codebetter333.pages.dev/posts/2024-11-09-understanding-the-challenges-and-optimizing-parallel-csv-file-reads-with-dask
date:   2024-11-09
seen:   read_csv of a text file of a gigabyte took half an hour, with one core busy, although there were many threads.
cause:  making Python strings of the fields holds the GIL, so that threads of one process parse in turn.
cure:   processes instead of threads.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
GOOD_CLUSTER = TWO_BY_ONE
CONFIG = {"dataframe.convert-string": False}
MONTHS = 12
FLIGHTS = scaled(130_000)

EXPECTED = Expected(
    cause="parsing text to Python strings holds the GIL: the threads of the one process take turns",
    place="the line of read_csv, or that of the compute",
    cure="a process for each core, with one thread",
    says=r"\bGIL\b|interpreter lock|threads? .{0,30}(take turns|in turn|one at a time|each other)",
    places=(*marked(__file__), function("routes_of_bases"), function("read_csv")),
    cures=r"process",
    never={
        COMPUTED_AGAIN: "each file is read once",
        LONGER_TASKS: "each task takes a good part of a second",
        SLEEP: "nothing sleeps",
    },
)


def prepare() -> None:
    place = folder("rosters")
    rng = np.random.default_rng(12)
    airports = np.array([f"AIRPORT-{number:04d}" for number in range(900)])
    for month in range(MONTHS):
        table = pd.DataFrame(
            {
                "pilot": rng.integers(0, 400_000, FLIGHTS),
                "base": airports[rng.integers(0, 40, FLIGHTS)],
                "start": airports[rng.integers(0, 900, FLIGHTS)],
                "end": airports[rng.integers(0, 900, FLIGHTS)],
                "remark": rng.integers(0, 10**9, FLIGHTS),
                "minutes": rng.integers(30, 700, FLIGHTS),
            }
        )
        table["pilot"] = "licence " + table["pilot"].astype(str)
        table["remark"] = "entered by office " + table["remark"].astype(str)
        table.to_csv(place / f"{month:02d}.csv", index=False)


def routes_of_bases() -> float:
    texts = dict.fromkeys(("pilot", "base", "start", "end", "remark"), object)
    rosters = dd.read_csv(str(folder("rosters") / "*.csv"), dtype=texts)  # <- here
    routes = rosters["pilot"] + ":" + rosters["base"] + ":" + rosters["start"] + ">" + rosters["end"]
    lengths = routes.str.upper().str.len() + rosters["remark"].str.len()
    return float((lengths * rosters["minutes"]).sum().compute())  # <- here


def bad(client: Client) -> float:
    return routes_of_bases()


def good(client: Client) -> float:
    return routes_of_bases()
