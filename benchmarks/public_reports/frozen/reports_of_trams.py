"""What trams report on their way, as one table by time.

source: dask/dask issue 2048
date:   2017-03-06
seen:   an index of times was set on a table from many CSV files: the graph got many more tasks, and it took as if for
        ever, while pandas alone took little time.
cause:  to set the index, all files are parsed to find where to cut, then parsed again, and all rows shuffled.
cure:   the table fits into memory: make it one pandas table and set its index.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
TRAMS = scaled(190)
REPORTS = 30_000

EXPECTED = Expected(
    cause="set_index parses all files to find the divisions, parses them again, and shuffles all rows",
    place="the line of set_index, or that of compute",
    cure="a pandas table, as it fits into memory; or no index, or divisions given",
    says=r"shuffl|set_index|(pars|read|comput|load)\w* .{0,40}(twice|again|two times)|p2p|divisions|quantiles"
    r"|pars(e|ed|ing)\b.{0,40}(csv|text|files?|times?|dates?)|read(ing)? .{0,20}(csv|text)",
    places=(*marked(__file__),),
    cures=r"pandas|divisions|sorted=True|persist|parquet|(avoid|without|skip|drop|no) .{0,30}(shuffle|set_index|index)"
    r"|\bonce\b|one partition",
    never={
        LOCK: "no lock is used",
        MORE_MEMORY: "memory is not short",
        MORE_WORKERS: "both cores are busy",
    },
)


def prepare() -> None:
    place = folder("trams")
    for tram in range(TRAMS):
        rng = np.random.default_rng(tram)
        times = pd.Timestamp("2016-05-01") + pd.to_timedelta(np.sort(rng.integers(30 * 86_400, size=REPORTS)), unit="s")
        pd.DataFrame(
            {
                "time": times,
                "speed": rng.random(REPORTS).round(4),
                "load": rng.integers(200, size=REPORTS),
                "doors": rng.choice(["open", "shut"], REPORTS),
            }
        ).to_csv(place / f"tram-{tram:03}.csv", index=False)


def reports() -> dd.DataFrame:
    return dd.read_csv(folder("trams") / "*.csv", parse_dates=["time"])


def busiest(loads: pd.Series) -> float:
    """Load of all trams in the busiest hour."""
    return float(loads.groupby(loads.index.floor("h")).sum().max())


def bad(client: Client) -> float:
    by_time = reports().set_index("time")  # <- here
    return busiest(by_time["load"].compute())  # <- here


def good(client: Client) -> float:
    by_time = reports()[["time", "load"]].compute().set_index("time")
    return busiest(by_time["load"])
