"""Parcels are sorted by depot, though each part of the table only needs the depot as its index.

source: dask/dask issue 10333; its cure: dask/dask pull request 10342; a like case: lincc-frameworks/tape issue 242
date:   2023-06-06 (10342: 2023-06-12; tape 242: 2023-09-28)
seen:   setting an index on a large table takes very long: it is computed once for new divisions, and then all rows are
        sorted across the cluster, where the user only wanted the column as the index of each partition.
cause:  set_index sorts the whole table by default: the source is read twice, and all rows go through a shuffle.
cure:   set_index(..., sort=False), which sets the index within each partition, where order is not needed.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
DAYS, PARCELS, DEPOTS = 24, scaled(400_000), 900

EXPECTED = Expected(
    cause="set_index sorts the table: its source is made once to find the divisions and once more for a shuffle, which"
    " moves every row between the workers, while the work that follows looks at one partition at a time",
    place="the set_index(), or the compute() which runs it; function with_fees; tasks of the shuffle",
    cure="set_index with sort=False (or the index set in map_partitions), or no index at all",
    says=r"shuffl|set_index|\bsort(s|ed|ing)?\b|divisions|quantile|repartition"
    r"|(moves?|moved|sent|exchanged?|transfer\w*)\b.{0,40}\b(rows|workers|partitions|table|data)|all-to-all",
    places=(
        *marked(__file__),
        function("with_fees"),
        function("set_index"),
        function("bad"),
        r"shuffle|sort_index|quantiles?|SetIndex|p2p|P2P",
    ),
    cures=r"sort\s*=\s*False|sorted\s*=\s*True"
    r"|(without|avoid|no|not|skip|drop|needless)\b.{0,40}(sort|shuffl|set_index|index)"
    r"|map_partitions|(within|in|inside|per) (each|every|one|a)? ?partition|divisions"
    r"|(sort|shuffl\w*|set_index|index)\b.{0,40}\b(once|not need|only if|only when|needed)|merge|join",
    never={
        MORE_WORKERS: "the work is needless",
        MORE_MEMORY: "there is enough",
        LONGER_TASKS: "two dozen partitions, and the shuffle is what takes long",
    },
)


def day(number: int) -> pd.DataFrame:
    """Parcels of a day, as they came in."""
    rng = np.random.default_rng(number)
    return pd.DataFrame(
        {
            "depot": rng.integers(0, DEPOTS, PARCELS),
            "weight": rng.gamma(2.0, 1.5, PARCELS),
            "length": rng.uniform(10.0, 90.0, PARCELS),
            "width": rng.uniform(5.0, 60.0, PARCELS),
            "service": np.array(["letter", "parcel", "express", "freight"])[rng.integers(0, 4, PARCELS)],
        }
    )


def parcels() -> dd.DataFrame:
    table: dd.DataFrame = dd.from_map(day, range(DAYS), meta=day(0).iloc[:0])
    return table


def with_fees(part: pd.DataFrame) -> pd.Series:
    """Fees of a part of the table, which has the depot as its index."""
    fees = pd.DataFrame({"fee": np.linspace(0.5, 4.0, DEPOTS)}, index=pd.RangeIndex(DEPOTS, name="depot"))
    joined = part.join(fees)
    volume = joined["length"] * joined["width"] * 0.01
    return joined["fee"] * (joined["weight"] + volume) * np.where(joined["service"] == "express", 2.0, 1.0)


def bad(client: Client) -> float:
    by_depot = parcels().set_index("depot")  # <- here
    return float(by_depot.map_partitions(with_fees, meta=(None, "f8")).sum().compute())  # <- here


def good(client: Client) -> float:
    by_depot = parcels().set_index("depot", sort=False)
    return float(by_depot.map_partitions(with_fees, meta=(None, "f8")).sum().compute())
