"""Rosters of pilots: how many different routes they flew in each month.

source: https://codebetter333.pages.dev/posts/2024-11-09-understanding-the-challenges-and-optimizing-parallel-csv-file-reads-with-dask
date:   2024-11-09
seen:   read_csv of a text file of a gigabyte took half an hour, with one core busy, although there were many threads.
cause:  making Python strings of the fields, and working with them, holds the GIL: threads of one process take turns.
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
MONTHS = 24
FLIGHTS = scaled(150_000)

EXPECTED = Expected(
    cause="making and joining Python strings holds the GIL: the threads of the one process take turns",
    place="the line of read_csv, or that of the compute",
    cure="a process for each core, with one thread",
    says=r"\bGIL\b|interpreter lock|threads? .{0,30}(take turns|in turn|one at a time|each other)",
    places=(
        *marked(__file__),
        function("all_routes"),
        function("routes_of_month"),
        function("tidy"),
        function("read_csv"),
    ),
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
                "base": airports[rng.integers(0, 40, FLIGHTS)],
                "start": airports[rng.integers(0, 900, FLIGHTS)],
                "end": airports[rng.integers(0, 900, FLIGHTS)],
                "minutes": rng.integers(30, 700, FLIGHTS),
            }
        )
        table.to_csv(place / f"{month:02d}.csv", index=False)


def tidy(names: pd.Series) -> pd.Series:
    return names.str.strip().str.title().str.replace("-", " ", regex=False)


def routes_of_month(roster: pd.DataFrame) -> pd.Series:
    """Number of pairs of airports between which pilots of a base flew, there or back."""
    base, start, end = (tidy(roster[name]) for name in ("base", "start", "end"))
    there = base + ": " + start + " to " + end
    back = base + ": " + end + " to " + start
    return pd.Series([len(set(there) | set(back))])


def all_routes() -> float:
    texts = dict.fromkeys(("base", "start", "end"), object)
    rosters = dd.read_csv(str(folder("rosters") / "*.csv"), dtype=texts)  # <- here
    return float(rosters.map_partitions(routes_of_month, meta=(None, "int64")).sum().compute())  # <- here


def bad(client: Client) -> float:
    return all_routes()


def good(client: Client) -> float:
    return all_routes()
