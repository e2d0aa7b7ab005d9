"""A Dask DataFrame is an argument of delayed functions, each of which needs one partition of it.

source: dask/distributed issue 1145; like cases: dask/dask issues 1984 and 1998
date:   2017-06-07 (the like cases 2017-02-15 and 2017-02-21)
seen:   a delayed function is called for each part of a Dask DataFrame with the DataFrame and the number of the part.
        The memory of the workers fills up, though each call keeps a small slice only.
cause:  a collection that is an argument of a delayed function is computed first, so that the function gets all of it as
        one pandas DataFrame: all partitions are put together on one worker, all of that goes to every other worker, and
        each task looks for its slice in all rows.
cure:   give each task the partition it needs: DataFrame.to_delayed, or map_partitions.
"""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
STATIONS = scaled(60)
ROWS = 60_000

EXPECTED = Expected(
    cause="every task gets the whole DataFrame, put together from all partitions, and looks for its part in it",
    place="the call of the delayed function with the DataFrame; or augment, or the task that puts the partitions"
    " together",
    cure="one partition for each task: to_delayed or map_partitions",
    says=r"\b(whole|entire|full|all (of )?(the )?(partitions|data|rows))\b|concat|finali[sz]e|put together"
    r"|single partition|\bone (big |large |huge )?(partition|DataFrame|piece|result)\b|\b(large|big"
    r"|huge) (\w+ )?(inputs?|arguments?|results?|objects?|partitions?|transfers?|dependenc\w+)"
    r"|\d+(\.\d+)? [MG]i?B\b.{0,60}(input|argument|read|task|transfer|sent|moved|copied)|(input|argument|transfer"
    r"|sent|moved|copied).{0,60}\b\d+(\.\d+)? [MG]i?B|==|compar",
    places=(*marked(__file__), function("augment"), r"(?i)finalize|concat"),
    cures=r"to_delayed|map_partitions|(one|own|single|each|its|per) partition|\bonly (the )?(rows|part|slice)"
    r"|smaller (part|input|piece|partition|result)|less data|select .{0,30}(before|first|earlier)"
    r"|before .{0,30}(put together|concat)|filter .{0,30}(before|first|earlier)|keep .{0,30}(apart|separate"
    r"|partitioned)|partitions? (one by one|separately)",
    never={
        LONGER_TASKS: "the tasks are long enough",
        MORE_MEMORY: "no task needs more than one small partition",
    },
)


def measurements(station: int) -> pd.DataFrame:
    random = np.random.default_rng(station)
    compute_for(0.02)
    return pd.DataFrame(
        {
            "station": f"station-{station:03d}",
            "wind": random.random(ROWS),
            "rain": random.random(ROWS),
        }
    )


def augment(frame: pd.DataFrame, station: int) -> float:
    part = frame[frame["station"] == f"station-{station:03d}"]
    compute_for(0.02)
    return float((part["wind"] * part["rain"]).sum())


def bad(client: Client) -> float:
    frame = dd.from_map(measurements, range(STATIONS))
    sums = [dask.delayed(augment)(frame, station) for station in range(STATIONS)]  # <- here
    return float(round(sum(dask.compute(*sums)), 3))


def good(client: Client) -> float:
    frame = dd.from_map(measurements, range(STATIONS))
    sums = [dask.delayed(augment)(part, station) for station, part in enumerate(frame.to_delayed())]
    return float(round(sum(dask.compute(*sums)), 3))
