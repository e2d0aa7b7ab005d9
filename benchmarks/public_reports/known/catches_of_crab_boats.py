"""The catches of crab boats, added to a table on disk trip by trip.

source: dask/fastparquet issue 96
date:   2017-03-03
seen:   appending to a Parquet folder again and again, each append took longer after some 200 of them.
cause:  each append reads the metadata of all that is there, and writes it again with the new part; with a client, each
        is a computation of its own that the script waits for as well.
cure:   collect the parts, and write them at once.
"""

from __future__ import annotations

import shutil

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
TRIPS = scaled(130)
POTS = 500
COLUMNS = 24

EXPECTED = Expected(
    cause="to_parquet is called for each trip in a loop: each append is a small computation the script waits for, and"
    " reads and writes the metadata of all parts again",
    place="the line of to_parquet",
    cure="write all trips at once, by one to_parquet",
    says=r"one after (the other|another)|one by one|\d+ (small )?(computations|graphs)"
    r"|many (small )?(computations|graphs)|\bwait\w* for each|in turn|in a loop|append|metadata|to_parquet"
    r"|(client|script).{0,60}(busy|writ|itself)",
    places=(*marked(__file__), r"to_parquet"),
    cures=r"at once|in one|\bone (to_parquet|computation|call|graph|write)|together|fewer (computations|calls|appends)"
    r"|collect|concat|ignore_divisions|metadata|single",
    never={
        COMPUTED_AGAIN: "each part is another one",
        MORE_WORKERS: "the workers have next to nothing to do",
    },
)


def trip(number: int) -> dd.DataFrame:
    rng = np.random.default_rng(number)
    table = pd.DataFrame({f"depth-{i}": rng.random(POTS) for i in range(COLUMNS)})
    table["pot"] = np.arange(POTS) + number * POTS
    return dd.from_pandas(table.set_index("pot"), npartitions=1)


def harbour() -> str:
    place = folder("catches_of_crab_boats") / "trips"
    shutil.rmtree(place, ignore_errors=True)
    return str(place)


def weight(place: str) -> float:
    return float(dd.read_parquet(place, columns=["depth-3"])["depth-3"].sum().compute())


def bad(client: Client) -> float:
    place = harbour()
    for number in range(TRIPS):
        trip(number).to_parquet(place, append=number > 0, write_metadata_file=True)  # <- here
    return weight(place)


def good(client: Client) -> float:
    place = harbour()
    dd.concat([trip(number) for number in range(TRIPS)]).to_parquet(place, write_metadata_file=True)
    return weight(place)
