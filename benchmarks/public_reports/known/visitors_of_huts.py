"""Books of visitors of mountain huts are in a folder for each hut and month; each hut is asked for by itself.

source: dask/dask issue 3571
date:   2018-06-05
seen:   a filtered read from a dataset in many folders takes more than a second, nearly all of it before the first byte
        of data is read, and again for the next filter.
cause:  each read_parquet lists and looks at all files of the dataset, to use a few of them.
cure:   look at the dataset once, or give the path of the folder that is wanted.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
NEEDS = ("pandas", "pyarrow")
HUTS, MONTHS = scaled(80), 36
ASKED = scaled(18)

EXPECTED = Expected(
    cause="each read_parquet goes through all files of the dataset, on the client, for a few of them",
    place="the read_parquet() in the loop",
    cure="give the folder of the hut; or read the dataset once for all huts",
    says=r"read_parquet|metadata|list(s|ing|ed)?\b.{0,30}\bfiles|files?\b.{0,30}\blist"
    r"|(many|thousands of|all|each|\d) (small )?files"
    r"|client\b.{0,60}\b(busy|between|itself|alone|before)|workers? (are |is )?(idle|wait)|before .{0,30}(task|comput)",
    places=marked(__file__),
    cures=r"once|path|folder|director|one (read|call|compute)|out of the loop|outside|before the loop"
    r"|fewer (files|calls)"
    r"|together|larger files|dataset|at once|all .{0,20}in one",
    never={
        MORE_WORKERS: "the workers are idle",
        PROCESSES: "the workers are idle",
        LOCK: "there is none",
        MORE_MEMORY: "memory is ample",
    },
)


def prepare() -> None:
    place = folder("visitors_of_huts")
    rng = np.random.default_rng(1)
    for hut in range(HUTS):
        for month in range(MONTHS):
            leaf = place / f"hut={hut:03}" / f"month={month:02}"
            leaf.mkdir(parents=True, exist_ok=True)
            pd.DataFrame({"guests": rng.integers(1, 9, 40)}).to_parquet(leaf / "book.parquet")


def bad(client: Client) -> float:
    place = folder("visitors_of_huts")
    total = 0.0
    for hut in range(ASKED):
        books = dd.read_parquet(place, columns=["guests"], filters=[("hut", "==", hut)])  # <- here
        total += float(books["guests"].sum().compute())  # <- here
    return total


def good(client: Client) -> float:
    place = folder("visitors_of_huts")
    total = 0.0
    for hut in range(ASKED):
        books = dd.read_parquet(place / f"hut={hut:03}", columns=["guests"])
        total += float(books["guests"].sum().compute())
    return total
