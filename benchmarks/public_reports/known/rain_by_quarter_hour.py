"""Rain of many stations, in a text file of each, is asked for by time.

source: dask/dask issue 2048
date:   2017-03-06
seen:   set_index() by the time of the report, after read_csv of many files, added very many tasks to the graph and
        seemed to run forever; pandas alone needed a short time.
cause:  set_index() sorts: all files are read once to find the borders of the partitions, and then read again and all
        rows are moved between partitions (a shuffle), for one sum over a span of time.
cure:   no index: choose the rows of the span by the column, which needs no order.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_TWO, Expected, folder, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
STATIONS = 24
ROWS = scaled(500_000)

EXPECTED = Expected(
    cause="set_index() reads all files twice and shuffles all rows, for a sum over a span of time",
    place="set_index()",
    cure="no set_index(): choose rows by the column; or write an index once, to Parquet",
    says=r"shuffl|set_index|sort|mov\w+ .{0,30}(data|rows|partitions)|transfer|twice"
    r"|computed again|(read|made) again|repeat",
    places=(*marked(__file__), r"set_index", r"read_csv", r"shuffle|p2p", r"\bharshness\b"),
    cures=r"without (an |the )?(index|set_index)|by the column|filter|sorted|divisions|persist|once|parquet"
    r"|avoid (the |a )?shuffl|without (a |the )?shuffl|presort|\bindex\b",
    never={
        LONGER_TASKS: "the partitions are files of half a second each",
        r"(?i)out of memory|spill": "all of the rows fit in memory many times",
    },
)


def paths() -> list[str]:
    return [str(folder("rain_by_quarter_hour") / f"station-{i:02d}.csv") for i in range(STATIONS)]


def prepare() -> None:
    """Write a file for each station, the rows in order of time."""
    for station, path in enumerate(paths()):
        rng = np.random.default_rng(station)
        pd.DataFrame(
            {
                "minute": np.arange(ROWS) * 15,
                "snow": np.round(rng.gamma(0.2, 2.0, ROWS), 2),
                "rain": np.round(rng.gamma(0.3, 4.0, ROWS), 2),
                "wind": np.round(rng.gamma(2.0, 3.0, ROWS), 2),
                "air": np.round(rng.normal(9, 6, ROWS), 2),
            }
        ).to_csv(path, index=False)


def weather() -> dd.DataFrame:
    return dd.read_csv(paths(), blocksize=None)


def span() -> tuple[int, int]:
    return ROWS * 15 // 4, ROWS * 15 // 2


def harshness(rain: dd.DataFrame) -> float:
    return float((rain["rain"] * 10 + rain["wind"] + rain["air"] + rain["snow"]).sum().compute())


def bad(client: Client) -> float:
    first, last = span()
    in_order = weather().set_index("minute")  # <- here
    return harshness(in_order.loc[first:last])  # <- here


def good(client: Client) -> float:
    first, last = span()
    reports = weather()
    return harshness(reports[reports["minute"].between(first, last)])
