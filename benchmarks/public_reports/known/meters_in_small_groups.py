"""Power of electricity meters was written to Parquet files as it came in, and is added up.

source: aloneguid/parquet-dotnet issue 117 (Dask and small row groups); why it is no longer Dask's default: dask/dask
        pull requests 8981 and 9637
date:   2021-06-29 (8981: 2022-04-26; 9637: 2022-11-29)
seen:   files of millions of rows have groups of five thousand rows; Dask makes a task of each group, which is far too
        small, and reading takes very long.
cause:  split_row_groups=True makes a partition of each of the small groups: each task opens the file and parses its
        footer, which describes all groups and columns, in order to read a few rows.
cure:   split_row_groups=False (a partition for each file), or "adaptive", or a number; or larger groups when writing.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
STREETS, GROUPS, ROWS, METERS = scaled(6), 140, 400, 40

EXPECTED = Expected(
    cause="there is a partition for each small row group, and each of these tasks opens its file and parses the whole"
    " footer for a few hundred rows",
    place="read_parquet in power, or its tasks, or the computation",
    cure="split_row_groups=False, adaptive or a number, or larger row groups",
    says=r"row.?groups?|(tiny|small|short|too many|very many|hundreds of|thousands of|\d{3,}"
    r"|many)\W+(\w+\W+){0,3}(partitions"
    r"|tasks|reads|pieces|groups)|(partitions|tasks|reads|pieces)\W+(\w+\W+){0,4}(tiny|small|short|few rows)|overhead"
    r"|footer|metadata|opens?\b.{0,60}(again|each|every|times)|(few|hundred) rows",
    places=(*marked(__file__), function("power"), r"read_?parquet", r"ParquetFile|parquet"),
    cures=r"split_row_groups|row.?groups?|(fewer|larger|bigger|longer)|adaptive|blocksize|per file|whole files?"
    r"|repartition"
    r"|aggregate|together",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both are busy with footers",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        COMPUTED_AGAIN: "nothing is computed twice",
    },
)


def prepare() -> None:
    place = folder("meters")
    names = [f"meter_{number:03}" for number in range(METERS)]
    schema = pa.schema([(name, pa.float64()) for name in names])
    for street in range(STREETS):
        rng = np.random.default_rng([11, street])
        with pq.ParquetWriter(place / f"street_{street:02}.parquet", schema) as writer:
            for _ in range(GROUPS):
                watts = rng.gamma(2.0, 150.0, (METERS, ROWS)).round()
                writer.write_table(pa.table(dict(zip(names, watts, strict=True)), schema=schema))


def power(split: bool) -> float:
    """Mean power of all meters."""
    frame = dd.read_parquet(folder("meters"), split_row_groups=split)  # <- here
    return float(frame.sum().compute().sum() / (STREETS * GROUPS * ROWS * METERS))  # <- here


def bad(client: Client) -> float:
    return power(split=True)  # <- here


def good(client: Client) -> float:
    return power(split=False)
