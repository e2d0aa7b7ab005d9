"""The power of street lamps that are old is summed, from files with many columns.

source: narwhals-dev/narwhals issue 1349
date:   2024-11-10
seen:   a query that filters rows by loc read all columns of the Parquet files, where the same filter by square brackets
        read just the ones that it needs.
cause:  the optimizer does not pass the choice of columns through loc to read_parquet, so all columns are read.
cure:   square brackets instead of loc, or columns= of read_parquet.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_TWO, Expected, folder, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
FILES = 6
COLUMNS = 50
ROWS = scaled(500_000)
QUERIES = 3

EXPECTED = Expected(
    cause="all 52 columns of the files are read, though two of them are used",
    place="read_parquet, or loc",
    cure="a filter by square brackets instead of loc, or columns= of read_parquet",
    says=r"column|more (data )?than (it|they|is|are|you) (need|use)|unused|not used|never used|\bread_?parquet|"
    r"read(ing|s)? .{0,40}(files?|parquet|everything|all)|I/O|decod",
    places=(*marked(__file__), r"read_?parquet", r"\bpower_by_loc\b", r"\blamps\b"),
    cures=r"column|square brackets|\[\[|without loc|instead of loc|project|read (just|only|less|once)|fewer",
    never={LONGER_TASKS: "tasks of half a second are long enough"},
)


def prepare() -> None:
    """Write a file for each district."""
    for district in range(FILES):
        rng = np.random.default_rng(district)
        readings = {f"reading_{i:02d}": rng.normal(20, 5, ROWS) for i in range(COLUMNS)}
        lamps_there = pd.DataFrame({"year": rng.integers(1960, 2020, ROWS), "power": rng.uniform(20, 150, ROWS)})
        path = folder("lamps_of_streets") / f"district-{district}.parquet"
        lamps_there.assign(**readings).to_parquet(path, index=False)


def lamps() -> dd.DataFrame:
    return dd.read_parquet(str(folder("lamps_of_streets") / "*.parquet"))  # <- here


def power_by_loc(before: int) -> float:
    all_lamps = lamps()
    return float(all_lamps.loc[all_lamps["year"] < before]["power"].sum().compute())  # <- here


def power(before: int) -> float:
    all_lamps = lamps()
    return float(all_lamps[all_lamps["year"] < before]["power"].sum().compute())


def bad(client: Client) -> float:
    return sum(power_by_loc(1970 + 10 * i) for i in range(QUERIES))


def good(client: Client) -> float:
    return sum(power(1970 + 10 * i) for i in range(QUERIES))
