"""A table of a database is read in one partition for each day, by a column that has no index.

source: dask/dask pull request 1181 (reading by a column without an index is very slow), issue 6351 (every partition
        results in a full scan of the table)
date:   2017-03-30 (6351: 2020-07-16)
seen:   to read a table in partitions takes far longer than to read it at once, and longer with every partition more.
cause:  the database has no index of the column that partitions are cut by, so that each partition's query goes through
        all rows of the table to find its own few.
cure:   an index on that column (or partitions along the key that the table is ordered by).
"""

from __future__ import annotations

import sqlite3

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
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

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
DAYS, ROWS = 120, scaled(1_200_000)

EXPECTED = Expected(
    cause="each partition's query scans the whole table, since the column day has no index: nearly all the time is"
    " spent in the database's query, and rises with the number of partitions",
    place="readings_of_day, in its query (read_sql_query / execute), for each partition",
    cure="an index on the column, or partitions along the key; else fewer, larger queries",
    says=r"\bquer(y|ies)\b|database|sqlite|\bsql\b|full scan|scans?\b|read_sql|without an index|no index|whole table"
    r"|same (table|file|rows)\b.{0,40}\b(again|each|every|times)|again for (each|every)",
    places=(*marked(__file__), function("readings_of_day"), r"read_sql"),
    cures=r"\bindex|primary key|sort(ed)? by|order(ed)? by|fewer (quer|partition|read)|larger (partition|quer|read)"
    r"|bigger (partition|quer)|once\b|parquet",
    never={
        LOCK: "readers do not lock each other out",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        MORE_MEMORY: "there is enough",
    },
)


def database() -> str:
    return str(folder("readings") / "readings.sqlite")


def prepare() -> None:
    rng = np.random.default_rng(3)
    columns = {
        "sensor": rng.integers(0, 500, ROWS),
        "day": rng.integers(0, DAYS, ROWS),
        "value": rng.normal(20, 3, ROWS).round(3),
        "note": [f"reading taken by logger {i % 7919}" for i in range(ROWS)],
    }
    with sqlite3.connect(database()) as connection:
        pd.DataFrame(columns).to_sql("readings", connection, index=False)


def readings_of_day(day: int) -> pd.DataFrame:
    query = "select sensor, value from readings where day >= ? and day < ?"
    with sqlite3.connect(f"file:{database()}?mode=ro", uri=True) as connection:
        return pd.read_sql_query(query, connection, params=(day, day + 1))  # <- here


def spread_of_sensors() -> float:
    meta = pd.DataFrame({"sensor": [0], "value": [0.0]}).head(0)
    readings = dd.from_map(readings_of_day, range(DAYS), meta=meta)  # <- here
    spread = readings.groupby("sensor")["value"].std()
    return float(spread.sum().compute())  # <- here


def bad(client: Client) -> float:
    return spread_of_sensors()


def good(client: Client) -> float:
    with sqlite3.connect(database()) as connection:
        connection.execute("create index by_day on readings (day)")
    return spread_of_sensors()
