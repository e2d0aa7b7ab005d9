"""Exposure to noise: vehicles are merged with residents of the same street, all with all.

source: biorack/magi issue 27; the same in pandas: pandas-dev/pandas issue 14736 (its warning: pull request 14788)
date:   2017-10-02 (14736: 2016-11-25)
seen:   a merge of two tables of moderate size makes a huge one, which takes memory and time; with Dask it is as huge.
cause:  the key is unique in neither table: a merge has a row for each pair of rows with the same key.
cure:   sums by key of one table (or both) before the merge, so that a key has one row.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PARTITIONS = 24
STREETS = 1_500
VEHICLES, RESIDENTS = scaled(75_000), 180_000

EXPECTED = Expected(
    cause="the merge has a row for each pair of a vehicle and a resident of a street",
    place="the merge(), or the compute() of its result",
    cure="sum the residents (and vehicles) of a street before the merge",
    says=r"merg(e|es|ed|ing)|\bjoin|many.to.many|pairs?|rows.{0,40}(multipl|per key|more|grow|many)|(multipl|more"
    r"|many).{0,30}rows"
    r"|duplicate|not unique|explo|cartesian|cross product|larger than (its|the) inputs?",
    places=(*marked(__file__), function("exposure"), r"merge\.py|join"),
    cures=r"aggregat|(sum|group|reduc|filter).{0,40}(first|before|earlier)|before (the )?(merg|join)|unique|duplicate"
    r"|fewer (rows|columns|bytes)|one row|smaller|map\(|less|drop|only the columns|index",
    never={
        MORE_MEMORY: "it would be as slow",
        LONGER_TASKS: "tasks are long",
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
    },
)


def vehicles_of(hour: int) -> pd.DataFrame:
    rng = np.random.default_rng(hour)
    return pd.DataFrame({"street": rng.integers(0, STREETS, VEHICLES), "loudness": rng.uniform(40, 90, VEHICLES)})


def residents() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame({"street": rng.integers(0, STREETS, RESIDENTS), "hours": rng.uniform(0, 24, RESIDENTS)})


def vehicles() -> dd.DataFrame:
    table: dd.DataFrame = dd.from_map(vehicles_of, range(PARTITIONS), meta=vehicles_of(0).head(0))
    return table


def exposure(merged: dd.DataFrame) -> dd.Series:
    """Exposure by street."""
    heard = merged.assign(heard=merged["loudness"] * merged["hours"])  # <- here
    by_street: dd.Series = heard.groupby("street")["heard"].sum()  # <- here
    return by_street


def bad(client: Client) -> float:
    merged = vehicles().merge(residents(), on="street")  # <- here
    return float(exposure(merged).compute().max())  # <- here


def good(client: Client) -> float:
    at_home = residents().groupby("street", as_index=False)["hours"].sum()
    merged = vehicles().merge(at_home, on="street")
    return float(exposure(merged).compute().max())
