"""The places of wells in metres, from longitude and latitude.

source: https://dask.discourse.group/t/592
date:   2022-05-01
seen:   converting coordinates took 22 s with pandas, and almost 5 minutes with Dask: a table of 1,000 partitions, of
        each of which a delayed function made a table of Dask again, which were concatenated in one more task.
cause:  a table within each task: the one task that concatenates a thousand of them, one by one, builds a graph of all
        the data on one worker, and its result, the graph with all rows, is sent to the client and from there back.
cure:   map_partitions with few partitions.
"""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
WELLS = scaled(600_000)
PARTS, FEW_PARTS = scaled(500), 8

EXPECTED = Expected(
    cause="500 small partitions, of which tasks make tables of Dask within, put together in one task: overhead, a large"
    " graph with the data in it, and one worker that works alone",
    place="the line with concat, that of from_pandas, or the function in_metres",
    cure="map_partitions with fewer, larger partitions",
    says=r"(small|tiny|short|many).{0,30}(tasks?|partitions?)|(tasks?|partitions?).{0,40}(small|tiny|short|overhead)"
    r"|overhead|\bgraphs?\b|(within|inside|in) (a|each|the) tasks?|(one|single|last) (task|worker|thread)|concat"
    r"|nested|collections?|pickl|serializ",
    places=(*marked(__file__), function("in_metres"), r"\bconcat\b", r"from_pandas"),
    cures=r"map_partitions|(fewer|larger|bigger|longer) (tasks|partitions)|(pandas|plain) (table|frame|DataFrame)"
    r"|pd\.concat|from_delayed|npartitions|(without|outside|no) .{0,30}(collection|table|dask|graph)",
    never={
        COMPUTED_AGAIN: "each well is converted once",
        MORE_WORKERS: "one task has most of the work",
    },
)


def plain() -> pd.DataFrame:
    rng = np.random.default_rng(11)
    return pd.DataFrame({"lon": rng.uniform(-75.6, -75.5, WELLS), "lat": rng.uniform(-31.3, -31.2, WELLS)})


def converted(table: pd.DataFrame) -> pd.DataFrame:
    lat = np.radians(table["lat"])
    x = 6_378_137.0 * np.radians(table["lon"] + 75.0) * np.cos(lat)
    return table.assign(x=x, y=6_378_137.0 * np.log(np.tan(np.pi / 4 + lat / 2)))


@dask.delayed
def in_metres(table: pd.DataFrame) -> dd.DataFrame:
    return dd.from_pandas(converted(table), npartitions=1)  # <- here


def bad(client: Client) -> float:
    wells = dd.from_pandas(plain(), npartitions=PARTS)  # <- here
    tables = [in_metres(table) for table in wells.to_delayed()]
    metres = dask.delayed(dd.concat)(tables).compute()  # <- here
    return float(metres["x"].sum().compute())  # <- here


def good(client: Client) -> float:
    wells = dd.from_pandas(plain(), npartitions=FEW_PARTS)
    return float(wells.map_partitions(converted)["x"].sum().compute())
