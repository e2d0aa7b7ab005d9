"""Dates in a local notation are parsed without saying their format.

source: dask/dask issue 3717
date:   2018-07-05
seen:   to_datetime on a text column with the day first is many times slower than on ISO dates, in read_csv as in
        map_partitions.
cause:  the format is guessed for each value, by a parser in Python that holds the GIL.
cure:   give the format: values are then parsed in C.
"""

from __future__ import annotations

import dask.dataframe as dd
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    WAITS_FOR_CORES,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PARTITIONS, ROWS = 12, scaled(15_000)
FORMAT = "%d %B %Y %I:%M %p"

EXPECTED = Expected(
    cause="each date's format is guessed, in Python",
    place="the to_datetime(), or the function with it",
    cure="give the format",
    says=r"to_datetime|dateutil|pars(e|es|ed|ing|er)\b|\bdates?\b|format|by row|each (row|value)|Python (code"
    r"|bytecode|by|for)"
    r"|in Python\b|interpreted",
    places=(*marked(__file__), function("parsed"), function("to_datetime")),
    cures=r"format|ISO|vectori[sz]|whole columns|columns at once",
    never={
        PROCESSES: "there are as many processes as cores",
        MORE_WORKERS: "both cores are busy",
        WAITS_FOR_CORES: "with fewer threads it takes as long: both cores compute",
        LONGER_TASKS: "a task takes a second",
    },
)


def log(number: int) -> pd.DataFrame:
    times = pd.date_range("1980-01-07", periods=ROWS, freq="67min") + pd.Timedelta(days=number)
    return pd.DataFrame({"time": times.strftime(FORMAT), "value": range(ROWS)})


def logs() -> dd.DataFrame:
    return dd.from_map(log, range(PARTITIONS), meta=log(0).head(0))


def parsed(frame: pd.DataFrame, notation: str) -> pd.Series:
    times = pd.to_datetime(frame["time"], format=notation, dayfirst=True)  # <- here
    return times.dt.dayofyear * frame["value"]


def bad(client: Client) -> float:
    weights = logs().map_partitions(parsed, "mixed", meta=(None, "i8"))  # <- here
    return float(weights.sum().compute())  # <- here


def good(client: Client) -> float:
    weights = logs().map_partitions(parsed, FORMAT, meta=(None, "i8"))
    return float(weights.sum().compute())
