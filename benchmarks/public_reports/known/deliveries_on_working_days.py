"""Days on which orders are delivered: some working days later, by a calendar with holidays.

source: pandas-dev/pandas issue 32251; of the same kind: Nixtla/utilsforecast pull request 133
date:   2020-02-25
seen:   an offset of working days that is added to millions of dates takes minutes, where one of days takes none, and
        pandas warns that the offset is not vectorized.
cause:  pandas adds such an offset to one date after the other, each a Python object.
cure:   numpy's busday_offset for all dates at once; or each distinct date once.
"""

from __future__ import annotations

import warnings

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
DEPOTS, ORDERS, WORKING_DAYS = 12, scaled(70_000), 3
FIRST = np.datetime64("2015-01-01")
HOLIDAYS = [
    np.datetime64(f"{year}-{day}") for year in range(2014, 2027) for day in ("01-01", "05-01", "12-25", "12-26")
]
#: Without it each partition says what the report is about.
QUIET = "Non-vectorized DateOffset"

EXPECTED = Expected(
    cause="the offset of working days is applied to one date after the other, in Python, by pandas",
    place="the addition of the offset in delivered_by_offset",
    cure="numpy.busday_offset on all dates at once, or distinct dates only",
    says=r"vectori[sz]|offset|business|working days?|busday|one (date|value|element|row|object) (after|at)|each (date"
    r"|row|value|element)|(date|row|value|element|object)s? by|per (date|row|element|value)|element-?wise|python object"
    r"|python-level|datetimes\.py|_add_offset",
    places=(*marked(__file__), function("delivered_by_offset"), r"offset|DateOffset|BusinessDay|_add_"),
    cures=r"busday|vectori[sz]|numpy|at once|distinct|unique|whole (column|array|series)|array|look-?up|map\b|calendar",
    never={
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
        LONGER_TASKS: "tasks are long enough",
        MORE_MEMORY: "there is enough",
        SLEEP: "nothing sleeps",
    },
)


def orders(depot: int) -> pd.DataFrame:
    rng = np.random.default_rng(depot)
    days = FIRST + rng.integers(0, 3_650, ORDERS)
    return pd.DataFrame({"ordered": days.astype("datetime64[ns]"), "parcels": rng.integers(1, 5, ORDERS)})


def delivered_by_offset(frame: pd.DataFrame) -> pd.DataFrame:
    later = pd.offsets.CustomBusinessDay(WORKING_DAYS, holidays=HOLIDAYS)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", QUIET)
        return frame.assign(delivered=frame["ordered"] + later)  # <- here


def delivered_by_numpy(frame: pd.DataFrame) -> pd.DataFrame:
    days = frame["ordered"].to_numpy().astype("datetime64[D]")
    later = np.busday_offset(days, WORKING_DAYS, roll="backward", holidays=HOLIDAYS)
    return frame.assign(delivered=later.astype("datetime64[ns]"))


def parcel_days(frame: pd.DataFrame) -> pd.Series:
    return (frame["delivered"] - frame["ordered"]).dt.days * frame["parcels"]


def of_orders(deliver) -> float:  # type: ignore[no-untyped-def]
    frames = dd.from_map(orders, range(DEPOTS), meta=orders(0).head(0))
    delivered = frames.map_partitions(deliver, meta=frames._meta.assign(delivered=frames._meta["ordered"]))
    days = delivered.map_partitions(parcel_days, meta=pd.Series(dtype="int64"))
    return float(days.sum().compute())


def bad(client: Client) -> float:
    return of_orders(delivered_by_offset)


def good(client: Client) -> float:
    return of_orders(delivered_by_numpy)
