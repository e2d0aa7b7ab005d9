"""Rain of many stations, in text files by month, is asked for by time.

source: dask/dask issue 2048
date:   2017-03-06
seen:   set_index() by the time of the report, after read_csv of many files, added very many tasks to the graph and
        seemed to run forever; pandas alone needed a short time.
cause:  set_index() sorts: all files are read once to find the borders of the partitions, and then read again and all
        rows are moved between partitions (a shuffle), although the files are in order of time already.
cure:   tell it so: sorted=True with the borders that are known, so that nothing is moved.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_TWO, Expected, folder, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
MONTHS = 24
ROWS = scaled(120_000)

EXPECTED = Expected(
    cause="set_index() reads all files twice and shuffles the rows, which are in order already",
    place="set_index()",
    cure="set_index(..., sorted=True, divisions=...), or Parquet files with an index",
    says=r"shuffl|set_index|sort|mov\w+ .{0,30}(data|rows|partitions)|transfer|twice"
    r"|computed again|(read|made) again|repeat",
    places=(*marked(__file__), r"set_index", r"read_csv", r"shuffle|p2p", r"\bindexed\b"),
    cures=r"sorted|divisions|persist|once|parquet|avoid (the |a )?shuffl|without (a |the )?shuffl|presort|\bindex\b",
    never={
        LONGER_TASKS: "the partitions are files of half a second each",
        r"(?i)out of memory|spill": "all of the rows fit in memory many times",
    },
)


def paths() -> list[str]:
    return [str(folder("rain_by_quarter_hour") / f"month-{i:02d}.csv") for i in range(MONTHS)]


def prepare() -> None:
    """Write a file for each month, the rows in order of time."""
    for month, path in enumerate(paths()):
        rng = np.random.default_rng(month)
        pd.DataFrame(
            {
                "minute": month * ROWS + np.arange(ROWS),
                "station": rng.integers(0, 900, ROWS),
                "rain": np.round(rng.gamma(0.3, 4.0, ROWS), 2),
                "wind": np.round(rng.gamma(2.0, 3.0, ROWS), 2),
                "air": np.round(rng.normal(9, 6, ROWS), 2),
            }
        ).to_csv(path, index=False)


def wettest(rain: dd.DataFrame) -> float:
    middle = rain.loc[ROWS // 2 : (MONTHS - 1) * ROWS]
    return float((middle["rain"] * 10 + middle["wind"] + middle["air"] + middle["station"]).sum().compute())


def indexed(**known: object) -> dd.DataFrame:
    return dd.read_csv(paths(), blocksize=None).set_index("minute", **known)  # <- here


def bad(client: Client) -> float:
    return wettest(indexed())  # <- here


def good(client: Client) -> float:
    borders = [*range(0, MONTHS * ROWS, ROWS), MONTHS * ROWS - 1]
    return wettest(indexed(sorted=True, divisions=borders))
