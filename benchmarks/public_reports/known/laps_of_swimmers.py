"""A measure of one's own is worked out for each swimmer and stroke.

source: dask/dask issue 4239
date:   2018-11-25
seen:   groupby() by two columns with apply() of a function of one's own took longer with Dask than with pandas alone.
cause:  for apply(), all rows of a group have to be in one partition, so all rows are moved between partitions (a
        shuffle) first, with every column.
cure:   the files have whole groups already: group within each partition, by map_partitions.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
CLUBS = 20
ROWS = scaled(200_000)
MEASURES = 24
KINDS = {"swimmer": "i8", "stroke": "i8", "lap": "f8"} | {f"measure_{i:02d}": "f8" for i in range(MEASURES)}

EXPECTED = Expected(
    cause="groupby().apply() shuffles all rows between partitions before the groups are made",
    place="groupby().apply()",
    cure="group within partitions by map_partitions, since each has whole groups; or fewer columns first",
    says=r"shuffl|mov\w+ .{0,30}(data|rows|partitions|between)|transfer|communicat|between (workers|partitions)",
    places=(*marked(__file__), r"groupby|GroupBy", r"shuffle|p2p|rearrange", r"\bsteadiness_of_all\b"),
    cures=r"map_partitions|within (each |the )?partition|aggregat|avoid (the |a )?shuffl|without (a |the )?shuffl"
    r"|columns|set_index|sorted|divisions|\bagg\b|split",
    never={LONGER_TASKS: "there are 20 partitions of 40 MB"},
)


def club(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    swimmers = number * 20 + rng.integers(0, 20, ROWS)
    keys = {"swimmer": swimmers, "stroke": rng.integers(0, 4, ROWS), "lap": rng.normal(35, 2, ROWS)}
    return pd.DataFrame(keys | {f"measure_{i:02d}": rng.random(ROWS) for i in range(MEASURES)})


def steadiness(laps: pd.DataFrame) -> float:
    ordered = laps.sort_values("lap")
    return float(ordered["lap"].diff().abs().max() + ordered["measure_00"].mean())


def steadiness_within(part: pd.DataFrame) -> pd.Series:
    return part.groupby(["swimmer", "stroke"]).apply(steadiness)


def laps_of_clubs() -> dd.DataFrame:
    return dd.from_map(club, range(CLUBS), meta=KINDS)


def steadiness_of_all(laps: dd.DataFrame) -> dd.Series:
    return laps.groupby(["swimmer", "stroke"]).apply(steadiness, meta=(None, "f8"))  # <- here


def bad(client: Client) -> float:
    return float(steadiness_of_all(laps_of_clubs()).sum().compute())


def good(client: Client) -> float:
    return float(laps_of_clubs().map_partitions(steadiness_within, meta=(None, "f8")).sum().compute())
