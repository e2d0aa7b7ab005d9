"""Tables of potsherds, each written in order of the sherds' numbers, are merged by these numbers.

source: ml6team/fondant issue 649; why it shuffles: ml6team/fondant pull request 391
date:   2023-11-20 (the other 2023-08-29)
seen:   components of a pipeline write their columns to Parquet files, which the next one reads and merges by index:
        merging is by far the slowest part, whatever the index, as all rows are shuffled.
cause:  read_parquet does not look at the statistics of the files: divisions are unknown, so merge cannot know that
        the tables are sorted, and partitioned alike, already.
cure:   read_parquet(calculate_divisions=True) (or divisions given some other way): then partitions are merged in
        pairs.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
FILES, ROWS = 16, scaled(220_000)
TABLES = ("clay", "shape", "glaze")
COLUMNS = 4

EXPECTED = Expected(
    cause="the merges shuffle tables that are sorted by their index already, as their divisions are not known",
    place="the merge() in merged, or the read_parquet() in table_of, or the compute()",
    cure="read_parquet with calculate_divisions=True (known divisions, sorted index)",
    says=r"shuffl|divisions?|sorted|all-to-all|p2p|partitioned (alike|already)|mov(e|ed|es|ing) (all|every|each"
    r"|rows|data)|transfer"
    r"|hash.?join|rearrang|index (is|are) (not )?known",
    places=(*marked(__file__), function("merged"), function("table_of"), function("merge"), function("bad")),
    cures=r"divisions|sorted|partitioned alike|set_index|without (a )?shuffl|avoid (the )?shuffl|by (the )?index"
    r"|in pairs|map_partitions"
    r"|partition by partition|presort|align",
    never={
        MORE_WORKERS: "there is less to do, not more to do it with",
        HOLDS_GIL: "one thread a worker",
        COMPUTED_AGAIN: "each is computed once",
    },
)


def prepare() -> None:
    rng = np.random.default_rng(2)
    for table in TABLES:
        for file in range(FILES):
            index = pd.RangeIndex(file * ROWS, (file + 1) * ROWS, name="sherd")
            columns = {f"{table} {column}": rng.random(ROWS) for column in range(COLUMNS)}
            place = folder("potsherds") / table
            place.mkdir(exist_ok=True)
            pd.DataFrame(columns, index=pd.Index(np.asarray(index), name="sherd")).to_parquet(
                place / f"{file:02d}.parquet"
            )


def table_of(name: str, divisions: bool) -> dd.DataFrame:
    table: dd.DataFrame = dd.read_parquet(folder("potsherds") / name, calculate_divisions=divisions)  # <- here
    return table


def merged(divisions: bool) -> float:
    clay, shape, glaze = (table_of(name, divisions) for name in TABLES)
    sherds = clay.merge(shape, left_index=True, right_index=True)  # <- here
    sherds = sherds.merge(glaze, left_index=True, right_index=True)  # <- here
    likeness = sum(
        sherds[f"clay {column}"] * sherds[f"shape {column}"] * sherds[f"glaze {column}"] for column in range(COLUMNS)
    )
    return float(likeness.sum().compute())  # <- here


def bad(client: Client) -> float:
    return merged(divisions=False)


def good(client: Client) -> float:
    return merged(divisions=True)
