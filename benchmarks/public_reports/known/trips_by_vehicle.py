"""Trips, which are in order of their vehicle already, are grouped by the index to apply a function to each vehicle.

source: dask/dask issue 8959; of the same kind: issue 3135
date:   2022-04-20 (issue 3135: 2018-02-03)
seen:   a groupby of the index and apply shuffles the whole table, though it is ordered by that index and has known
        divisions.
cause:  the group is given as the index object (df.groupby(df.index)), by which Dask does not see that the groups are
        whole within their partitions.
cure:   group by the name of the index (or in map_partitions), which needs no shuffle.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
PARTITIONS, VEHICLES, FIXES = 16, scaled(24), 14_000

EXPECTED = Expected(
    cause="the groupby shuffles the whole table between the workers, though it is in order of its index already and"
    " each"
    " vehicle is within one partition",
    place="the line table.groupby(table.index) in per_vehicle, or its compute()",
    cure="group by the name of the index (or map_partitions), so that there is no shuffle",
    says=r"shuffl|p2p|all-to-all|(mov|transfer|sen[dt]|exchang)\w*\b.{0,60}\b(rows|data|table|partitions?|workers?)"
    r"|sorted already|already (sorted|in order|grouped|partitioned)",
    places=(*marked(__file__), function("per_vehicle"), r"groupby"),
    cures=r"shuffle|by (the )?name|map_partitions|index|divisions|sorted|already|group_keys|aggregat",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "there is enough",
    },
)


def fixes(partition: int) -> pd.DataFrame:
    rng = np.random.default_rng(partition)
    vehicles = np.repeat(np.arange(partition * VEHICLES, (partition + 1) * VEHICLES), FIXES)
    size = len(vehicles)
    columns = {name: rng.normal(0, 1, size) for name in ("x", "y", "height", "speed", "heading", "accuracy")}
    codes = rng.integers(0, 500, size)
    columns["road"] = pd.array(np.array([f"road {code:04d}" for code in range(500)])[codes], dtype="string[pyarrow]")
    return pd.DataFrame(columns, index=pd.Index(vehicles, name="vehicle"))


def table() -> dd.DataFrame:
    divisions = [*range(0, PARTITIONS * VEHICLES, VEHICLES), PARTITIONS * VEHICLES - 1]
    return dd.from_map(fixes, range(PARTITIONS), meta=fixes(0).head(0), divisions=divisions)


def way(trip: pd.DataFrame) -> float:
    steps = np.hypot(trip["x"].diff(), trip["y"].diff())
    return float(
        steps.sum() + (trip["height"].diff().clip(lower=0) * trip["speed"]).mean() + len(trip["road"].unique())
    )


def per_vehicle(by: object, trips: dd.DataFrame) -> float:
    return float(trips.groupby(by).apply(way, meta=("way", "f8")).sum().compute())  # <- here


def bad(client: Client) -> float:
    trips = table()
    return per_vehicle(trips.index, trips)  # <- here


def good(client: Client) -> float:
    return per_vehicle("vehicle", table())
