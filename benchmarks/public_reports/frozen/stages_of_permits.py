"""The date of each stage of a permit gets a column of its own.

source: dask/dask issue 11455
date:   2024-10-23
seen:   adding eight empty columns of dates, and filling each by mask() from a column of dates where the kind of event
        is right, took 10 s with query planning and 2 s without, for a small CSV file.
cause:  each assignment refers to the table with all columns before it, so that the expression doubles with each
        column; the client goes through all of it to build and to optimize the query.
cure:   fill all columns in one function of a partition, by map_partitions.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
PARTS = 8
ROWS = 50_000
#: Time doubles with each.
STAGES = 9 + scaled(7)

EXPECTED = Expected(
    cause="the client builds and optimizes an expression that doubles with each column that is assigned",
    place="the assignment of columns in a loop, or compute()",
    cure="assign all columns by one function of a partition, with map_partitions",
    says=r"client .{0,100}(build|mak|prepar|optimi[sz]|construct|graph|expression|query)"
    r"|(build|mak|prepar|optimi[sz]|construct)\w* .{0,30}(graph|expression|query|collection)"
    r"|(graph|expression|query)\w* .{0,60}(build|mak|prepar|optimi[sz]|grow|client)|wait\w* for (the|your) client"
    r"|before .{0,40}(tasks|graph)|\bmeta(data)?\b",
    places=(*marked(__file__), r"\bby_assignments\b", r"\bbad\b"),
    cures=r"map_partitions|one (function|step|call|assign)|fewer (steps|operations|columns|expressions)|at once"
    r"|together|persist|simpler|smaller (graph|expression)|in pandas",
    never={
        LONGER_TASKS: "the tasks are few; it is the client that works",
        MORE_WORKERS: "workers wait for the client",
    },
)


def permits(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 2000, ROWS), unit="D")
    return pd.DataFrame({"stage": rng.integers(0, 20, ROWS), "day": days.astype("datetime64[ns]")})


def table() -> dd.DataFrame:
    return dd.from_map(permits, range(PARTS), meta=permits(0).iloc[:0])


def with_stages(part: pd.DataFrame) -> pd.DataFrame:
    days = {f"day_{stage}": part["day"].where(part["stage"] == stage) for stage in range(STAGES)}
    return part.assign(**days)


def dated(filled: dd.DataFrame) -> float:
    return float(filled[[f"day_{stage}" for stage in range(STAGES)]].count().compute().sum())


def by_assignments(filled: dd.DataFrame) -> dd.DataFrame:
    for stage in range(STAGES):
        filled[f"day_{stage}"] = pd.NaT  # <- here
        empty = filled[f"day_{stage}"].astype("datetime64[ns]")  # <- here
        filled[f"day_{stage}"] = empty.mask(cond=filled["stage"] == stage, other=filled["day"])  # <- here
    return filled


def bad(client: Client) -> float:
    return dated(by_assignments(table()))  # <- here


def good(client: Client) -> float:
    return dated(table().map_partitions(with_stages))
