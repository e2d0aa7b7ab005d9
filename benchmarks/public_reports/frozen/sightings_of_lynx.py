"""Ways of lynxes, from what their collars sent, a file for some animals each.

source: dask/dask issue 3135
date:   2018-02-03
seen:   files sorted by the key were read, grouped by it, and a function applied to each group: everything was shuffled,
        although no group is in two partitions, and it took far longer than the function.
cause:  the partitions do not say which keys are in them, so that groupby-apply moves all rows to bring groups together.
cure:   map_partitions with pandas' own groupby, as each group is in one partition (or divisions that are known).
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
FILES = scaled(320)
ANIMALS = 8
FIXES = 2800

EXPECTED = Expected(
    cause="groupby-apply shuffles all rows between the workers, although each animal is in one partition already",
    place="the line of groupby and apply, or that of compute",
    cure="map_partitions with pandas' groupby, or known divisions",
    says=r"shuffl|transfer|p2p|(rows|data) (are |is )?(moved|sent|exchanged)|groupby.{0,20}apply",
    places=(*marked(__file__),),
    cures=r"map_partitions|divisions|sorted=True|set_index|(avoid|without|skip|no) .{0,30}shuffle|aggregat|\.agg\b"
    r"|built.?in|presort|one partition",
    never={
        COMPUTED_AGAIN: "the files are read once",
        LOCK: "no lock is used",
        MORE_WORKERS: "both cores are busy moving rows",
    },
)


def prepare() -> None:
    place = folder("lynx")
    for number in range(FILES):
        rng = np.random.default_rng(number)
        rows = ANIMALS * FIXES
        pd.DataFrame(
            {
                "animal": np.repeat([f"lynx {number * ANIMALS + k:05}" for k in range(ANIMALS)], FIXES),
                "east": rng.random(rows),
                "north": rng.random(rows),
                "height": rng.random(rows),
                "warmth": rng.random(rows),
                "collar": rng.choice(["old", "new", "loaned", "mended"], rows),
            }
        ).to_parquet(place / f"fixes-{number:04}.parquet", index=False)


def way(fixes: pd.DataFrame) -> float:
    """Length of an animal's way."""
    return float(np.hypot(np.diff(fixes["east"]), np.diff(fixes["north"])).sum())


def ways(fixes: pd.DataFrame) -> pd.Series:
    return fixes.groupby("animal")[["east", "north", "height", "warmth", "collar"]].apply(way)


def bad(client: Client) -> float:
    fixes = dd.read_parquet(folder("lynx"))
    lengths = fixes.groupby("animal").apply(way, meta=("way", "f8"))  # <- here
    return float(lengths.sum().compute())  # <- here


def good(client: Client) -> float:
    fixes = dd.read_parquet(folder("lynx"))
    lengths = fixes.map_partitions(ways, meta=("way", "f8"))
    return float(lengths.sum().compute())
