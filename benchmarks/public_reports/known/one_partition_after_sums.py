"""A series is summed up by its times, and then goes through further steps.

source: dask/dask issue 9674
date:   2022-11-18
seen:   a table of twelve partitions has one after a groupby and sum; the asker wonders whether the steps after it still
        run in parallel. They do not: one worker computes, the others wait.
cause:  the result of a groupby aggregation is put in one partition, unless told otherwise, however many groups it has;
        a partition is a task in each step after it.
cure:   split_out, so that the groups stay in several partitions (or repartition after the sums).
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
PARTITIONS, TIMES, WAVES = 12, scaled(200_000), 1_900

EXPECTED = Expected(
    cause="after the groupby all is one partition, so one task on one worker",
    place="the groupby, the function after it, or the computation",
    cure="split_out=, or repartition",
    says=r"(one|single|1|too few|few|fewer) (\w+ )?(partition|task|chunk|worker|thread|core)s?|only (one|1)\b|in turn"
    r"|parallel|idle|nothing to do|one after (the other|another)|serial|critical path|longest task|waits? for",
    places=(*marked(__file__), function("smooth"), r"groupby|sum|aggregat|\bagg\b"),
    cures=r"split_out|repartition|more partitions|split|smaller|several|parallel|shuffl|divide",
    never={
        MORE_WORKERS: "one of two has nothing to do already",
        r"(?i)bigger (partitions|chunks)|longer tasks": "the long one is too long",
        r"(?i)\bGIL contention": "numpy releases the GIL, and there is one thread a worker",
    },
)


def readings(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    return pd.DataFrame({"time": rng.permutation(TIMES), "level": rng.random(TIMES)})


def table() -> dd.DataFrame:
    return dd.from_map(readings, range(PARTITIONS), meta=readings(0).head(0))


def smooth(sums: pd.DataFrame) -> pd.DataFrame:
    level = sums["level"].to_numpy()
    total = np.zeros(len(level))
    for wave in range(1, WAVES):
        total += np.sin(level * wave) / wave  # <- here
    return sums.assign(level=total)


def bad(client: Client) -> float:
    sums = table().groupby("time")[["level"]].sum()  # <- here
    return float(sums.map_partitions(smooth, meta=sums._meta)["level"].sum().compute())  # <- here


def good(client: Client) -> float:
    sums = table().groupby("time", sort=False)[["level"]].sum(split_out=PARTITIONS)
    return float(sums.map_partitions(smooth, meta=sums._meta)["level"].sum().compute())
