"""Tables are written as Parquet files with the hardest level of compression.

source: dask/fastparquet issue 344
date:   2018-07-07
seen:   writing with gzip takes four minutes instead of one, for files that are a sixtieth smaller.
cause:  level 9 of gzip searches long for little: the cores compress, hardly anything else.
cure:   a low level, or a faster codec (snappy, zstd).
"""

from __future__ import annotations

import shutil

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
PARTITIONS, ROWS = 16, scaled(130_000)

EXPECTED = Expected(
    cause="gzip at level 9 takes most of the time",
    place="the to_parquet, its tasks",
    cure="a lower level, or snappy or zstd",
    says=r"compress|gzip|zlib|deflate|codec|to_?parquet|writ|level|pack",
    places=(*marked(__file__), r"parquet|write"),
    cures=r"compress|snappy|zstd|lz4|level|codec|gzip|faster|uncompressed",
    never={
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "a task takes more than a second",
    },
)


def counts(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    steps = rng.integers(-1, 2, (ROWS, 3)).cumsum(axis=0)
    return pd.DataFrame(steps, columns=["in", "out", "stay"]).assign(level=(steps[:, 0] / 8).round(1))


def written(**how: object) -> float:
    place = folder("counts")
    shutil.rmtree(place, ignore_errors=True)
    table = dd.from_map(counts, range(PARTITIONS), meta=counts(0).head(0))
    table.to_parquet(str(place), write_index=False, use_dictionary=False, **how)  # <- here
    return float(dd.read_parquet(str(place), columns=["level"])["level"].sum().compute())


def bad(client: Client) -> float:
    return written(compression="gzip", compression_level=9)  # <- here


def good(client: Client) -> float:
    return written(compression="zstd", compression_level=1)
