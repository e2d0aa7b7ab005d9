"""The spread of flowering dates of each variety in each orchard, from a table in no order.

source: dask/dask issue 4239
date:   2018-11-25
seen:   a function of the user's own, applied to the groups of two columns, took longer than pandas alone; what was
        wanted was that the groups are worked on by all cores.
cause:  an arbitrary function needs all rows of a group in one place, so that the whole table is shuffled between the
        workers, and the function is then called once for each of many groups.
cure:   say it as aggregations that Dask knows, which are taken in each partition first, so that only sums travel.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
PARTS = 16
ROWS = scaled(120_000)
ORCHARDS, VARIETIES = 300, 1_000

EXPECTED = Expected(
    cause="groupby(...).apply of an own function shuffles the whole table, and calls the function for each group",
    place="the line of groupby and apply, or the function that is applied",
    cure="aggregate with agg (min and max), which works within each partition and needs no shuffle",
    says=r"shuffl|groupby.{0,30}\bapply\b|(each|every|per|for a) group|group by group|groups? of its own"
    r"|moves? .{0,20}(rows|table|partitions)",
    places=(*marked(__file__), r"\bspread_of\b"),
    cures=r"\bagg\b|aggregat|Aggregation|built.?in|reduc|min\b.{0,20}max|without .{0,10}shuffl|avoid .{0,15}shuffl"
    r"|vectori[sz]",
    never={COMPUTED_AGAIN: "the table is used once"},
)


def records(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    return pd.DataFrame(
        {
            "orchard": rng.integers(0, ORCHARDS, ROWS),
            "variety": rng.integers(0, VARIETIES, ROWS),
            "day": rng.normal(120.0, 8.0, ROWS),
            "height": rng.random(ROWS),
            "girth": rng.random(ROWS),
        }
    )


def blossoms() -> dd.DataFrame:
    return dd.from_map(records, range(PARTS), meta=records(0).iloc[:0])


def spread_of(days: pd.Series) -> float:
    return float(days.max() - days.min())


def bad(client: Client) -> float:
    groups = blossoms().groupby(["orchard", "variety"])["day"]
    return float(groups.apply(spread_of, meta=("day", "f8")).compute().sum())  # <- here


def good(client: Client) -> float:
    ends = blossoms().groupby(["orchard", "variety"])["day"].agg(["min", "max"]).compute()
    return float((ends["max"] - ends["min"]).sum())
