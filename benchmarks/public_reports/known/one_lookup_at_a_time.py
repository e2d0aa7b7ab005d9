"""Rows of a list of keys are looked up in a table, one key after the other.

source: dask/dask issue 1298 (a loc for each of a list of keys; its comments give the cure); dask/dask issue 916 (loc
        scans everything where divisions are unknown)
date:   2016-06-17 (the other 2016-01-14)
seen:   getting the rows of some dozens of labels takes minutes; each takes as long as reading the whole table.
cause:  without known divisions each look-up goes through all partitions, and so reads all the files again.
cure:   look for all keys in one pass (isin within each partition); an index with divisions, if it is needed often.
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
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
FILES, ROWS, KEYS = 6, 300_000, scaled(24)

EXPECTED = Expected(
    cause="the whole table is read and scanned again for each of the keys: the same partitions are loaded 24"
    " times, one"
    " compute() after the other",
    place="the compute() in the loop of bad, the look-up by loc (or the read_parquet tasks)",
    cure="one pass for all keys (isin / merge, one compute), or persist the table, or an index with known divisions",
    says=r"again|repeat|(\d+(\.\d+)?|many|several) (times|computes|calls)|re-?(read|load|comput|scan)|more than"
    r" once|same (task|file|data|partition|work|result)"
    r"|(each|every|per) (key|look-?up|compute|call|iteration|time)|\bloop\b|one (after|by|at a)"
    r"|read_parquet|separate(ly)?",
    places=(*marked(__file__), r"read.?parquet", function("bad"), function("table"), r"\bloc\b|getitem"),
    cures=r"persist|\bonce\b|isin|one (pass|compute|call)|a single (pass|compute|call)|together|cache|divisions"
    r"|set_index|merge|join"
    r"|all (the )?keys|out(side)? of the loop|dask\.compute\(|reuse|re-use|batch",
    never={
        MORE_WORKERS: "the work is needless",
        MORE_MEMORY: "there is enough",
        LONGER_TASKS: "more work for a task would not read less",
    },
)


def prepare() -> None:
    for number in range(FILES):
        rng = np.random.default_rng(number)
        meters = np.sort(rng.permutation(FILES * ROWS)[:ROWS])
        columns = {f"hour {hour}": rng.integers(0, 5_000, ROWS) for hour in range(6)}
        names = [f"{meter % 8191:04d} Long Street" for meter in meters.tolist()]
        frame = pd.DataFrame({"address": names, **columns}, index=pd.Index(meters, name="meter"))
        frame.to_parquet(folder("meters") / f"{number}.parquet")


def table() -> dd.DataFrame:
    return dd.read_parquet(folder("meters") / "*.parquet", calculate_divisions=False)


def keys() -> list[int]:
    return np.random.default_rng(99).choice(FILES * ROWS, KEYS, replace=False).tolist()


def used(rows: pd.DataFrame) -> float:
    return float(rows.select_dtypes("number").to_numpy().sum() + rows["address"].str.len().sum())


def bad(client: Client) -> float:
    readings = table()
    total = 0.0
    for key in keys():
        rows = readings.loc[key].compute()  # <- here
        total += used(rows)
    return total


def chosen(rows: pd.DataFrame, keys: list[int]) -> pd.DataFrame:
    return rows[rows.index.isin(keys)]


def good(client: Client) -> float:
    return used(table().map_partitions(chosen, keys()).compute())
