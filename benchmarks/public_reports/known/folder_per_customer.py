"""Every partition writes a file into the folder of every customer.

source: dask/dask issue 7446; its documentation since: dask/dask pull request 10454
date:   2021-03-23 (the documentation 2023-08-21)
seen:   to_parquet with partition_on makes far more and smaller files than wanted: in the folder of each value there can
        be a file for every partition of the DataFrame.
cause:  rows of a customer are in all partitions, and partitions are written on their own, so there is a file for each
        pair of a partition and a customer: thousands, of a few rows each.
cure:   bring the rows of a customer together first: shuffle on the column, then write.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    folder,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
DAYS = scaled(36)
CUSTOMERS = 250
ROWS = 15_000

EXPECTED = Expected(
    cause="each of the partitions writes a tiny file for each customer: thousands of files",
    place="to_parquet with partition_on",
    cure="shuffle on the customer first, so that there is one file for each",
    says=r"\b(many|small|tiny|little|\d[\d,]*) (\w+ ){0,2}(files|writes|row groups)|files? (for|per|in|of) (each"
    r"|every)|files .{0,30}(small|tiny|many)|number of files|partition_on|\bhive\b|(open|writ)\w* .{0,30}files?\b"
    r"|writ(es|ing|ten) .{0,40}(small|tiny|pieces|little)|groups? (for|per|in) (each|every)",
    places=(*marked(__file__), r"(?i)to_?parquet|write_partition|write_table|write_to_dataset"),
    cures=r"\bshuffle|\bsort|fewer (and )?(\w+ )?(files|folders|values|partitions)|(larger|bigger) (files|partitions)"
    r"|repartition|coarser|together (first|before)|without partition_on|(leave|drop) .{0,20}partition_on"
    r"|one file (for|per)|bring .{0,40}together|group .{0,30}(before|first)|aggregate .{0,20}files|combine",
    never={
        HOLDS_GIL: "one thread a worker",
        COMPUTED_AGAIN: "nothing is computed twice",
        MORE_MEMORY: "partitions have 15,000 rows",
    },
)


def orders(day: int) -> pd.DataFrame:
    random = np.random.default_rng(day)
    return pd.DataFrame(
        {
            "customer": random.integers(0, CUSTOMERS, ROWS),
            "article": random.integers(0, 5_000, ROWS),
            "amount": random.random(ROWS),
        }
    )


def write(frame: dd.DataFrame) -> float:
    place = Path(tempfile.mkdtemp(dir=folder("folder_per_customer")))
    frame.to_parquet(str(place), partition_on=["customer"], write_index=False)  # <- here
    return float(sum(1 for path in place.iterdir() if path.is_dir()))


def bad(client: Client) -> float:
    return write(dd.from_map(orders, range(DAYS)))  # <- here


def good(client: Client) -> float:
    return write(dd.from_map(orders, range(DAYS)).shuffle("customer", npartitions=4))
