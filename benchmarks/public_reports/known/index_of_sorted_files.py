"""The index of CSV files that are in order already is set without saying so.

source: dask/dask issue 2048 (set_index computes: issue 2982)
date:   2017-03-06
seen:   set_index on the time in a folder of daily CSV files takes very long, as if forever, and adds many tasks to the
        graph; with pandas it is quick. (In 2982: it computes at once, even with compute=False.)
cause:  to find divisions, set_index reads and parses all files, before anything is asked for; then those that the
        result needs are read again.
cure:   set_index(sorted=True), with the divisions, which the names of the files give: each file is a day.

Three of twelve days are asked for.
"""

from __future__ import annotations

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_ONE, Expected, folder, marked, scaled

CLUSTER = TWO_BY_ONE
DAYS, ROWS = 12, scaled(150_000)

EXPECTED = Expected(
    cause="set_index reads all files, to find out what their names say",
    place="the set_index(), or the compute()",
    cure="sorted=True and divisions",
    says=r"set_index|twice|again|second time|repeated|shuffl|divisions|sort|read_?csv|\bcomput\w+ (at once"
    r"|eagerly|early)",
    places=marked(__file__),
    cures=r"sorted=True|divisions|without (a )?shuffl|avoid.{0,30}(shuffl|set_index)|persist|keep|once|parquet",
    never={
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "a task takes tenths of a second",
    },
)

FIRST = pd.Timestamp("2017-03-06")
NOTATION = "%d/%m/%Y %H:%M:%S"


def day(number: int) -> pd.Timestamp:
    return FIRST + pd.Timedelta(days=number)


def path() -> Path:
    return folder("reports")


def prepare() -> None:
    rng = np.random.default_rng(3)
    steps = pd.to_timedelta(np.linspace(0, 86_399, ROWS).astype("i8"), unit="s")
    frame = pd.DataFrame({"time": FIRST + steps, "id": rng.integers(0, 99, ROWS), "level": range(ROWS)})
    text = frame.to_csv(index=False, date_format=NOTATION)
    for number in range(DAYS):
        (path() / f"day-{number:02d}.csv").write_text(text.replace(f"{FIRST:%d/%m/%Y}", f"{day(number):%d/%m/%Y}"))


def reports() -> dd.DataFrame:
    return dd.read_csv(str(path() / "day-*.csv"), parse_dates=["time"], date_format=NOTATION)


def few_days(frame: dd.DataFrame) -> dd.DataFrame:
    return frame.loc[day(4) : day(7) - pd.Timedelta(seconds=1)]


def in_the_morning(frame: pd.DataFrame) -> pd.Series:
    return (frame["level"] * frame["id"])[frame.index.hour < 12]


def bad(client: Client) -> float:
    frame = reports().set_index("time")  # <- here
    levels = few_days(frame).map_partitions(in_the_morning, meta=(None, "i8"))
    return float(levels.sum().compute())  # <- here


def good(client: Client) -> float:
    divisions = [day(number) for number in range(DAYS)] + [day(DAYS) - pd.Timedelta(seconds=1)]
    frame = reports().set_index("time", sorted=True, divisions=divisions)
    levels = few_days(frame).map_partitions(in_the_morning, meta=(None, "i8"))
    return float(levels.sum().compute())
