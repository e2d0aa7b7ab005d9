"""Cargo that passed through harbours, a table for each, as one table.

source: dask/distributed issue 7864
date:   2023-05-27
seen:   hundreds of pandas tables, which the script had loaded from a database, were made lazy with from_pandas and
        concatenated: the first computation hung, with warnings of unmanaged memory, before a task had run.
cause:  the tables are in the graph: the script pickles all of them, and sends them through the scheduler to the
        workers, which unpack them.
cure:   load the tables in tasks, on the workers (from_map, from_delayed), and give the graph their names only.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
HARBOURS = scaled(155)
LOADS = 100_000

EXPECTED = Expected(
    cause="the tables that the script loaded are in the graph, and are sent with it through the scheduler",
    place="the line of from_pandas, that which loads the tables, or that of compute",
    cure="load the tables in tasks: from_map or from_delayed (or scatter them)",
    says=r"(large|big|huge|size of the|MB|MiB|GB|GiB|data|tables?|bytes).{0,60}\bgraph"
    r"|\bgraph\b.{0,60}(large|big|MB|MiB|data|bytes)|from_pandas|(client|script).{0,60}(busy|pickl|seriali[sz]|sen[dt]|load|build|before)|seriali[sz]|pickl",
    places=(*marked(__file__),),
    cures=r"from_map|from_delayed|scatter|read_parquet|(load|read|make|creat)\w* .{0,50}(task|worker)"
    r"|(in|inside|on|by) (the |a )?(tasks?|workers?)",
    never={
        COMPUTED_AGAIN: "each table is loaded once",
        LOCK: "no lock is used",
        LONGER_TASKS: "there are few tasks, and the graph has the size of the tables",
        MORE_WORKERS: "the workers wait for the script",
    },
)

KINDS = ["grain", "coal", "timber", "salt", "wool", "iron", "wine"]


def prepare() -> None:
    place = folder("harbours")
    for harbour in range(HARBOURS):
        rng = np.random.default_rng(harbour)
        pd.DataFrame(
            {
                "kind": rng.choice(KINDS, LOADS),
                "ship": [f"ship {number:06}" for number in rng.integers(1_000_000, size=LOADS)],
                "tons": rng.random(LOADS),
                "days": rng.integers(40, size=LOADS),
            }
        ).to_parquet(place / f"harbour-{harbour:03}.parquet")


def loads_of(harbour: int) -> pd.DataFrame:
    return pd.read_parquet(folder("harbours") / f"harbour-{harbour:03}.parquet")


def bad(client: Client) -> float:
    tables = {harbour: loads_of(harbour) for harbour in range(HARBOURS)}  # <- here
    parts = [dd.from_pandas(table, npartitions=1) for table in tables.values()]  # <- here
    loads = dd.concat(parts)
    tons = loads["tons"] * loads["days"] + loads["ship"].str.len()
    return float(tons.sum().compute())  # <- here


def good(client: Client) -> float:
    loads = dd.from_map(loads_of, range(HARBOURS))
    tons = loads["tons"] * loads["days"] + loads["ship"].str.len()
    return float(tons.sum().compute())
