"""The tolls of bridges, written as text.

source: dask/dask issue 1714
date:   2016-10-27
seen:   writing a table of numbers and text to many CSV files used one core only; with a distributed client of several
        processes, the same code was much faster.
cause:  making text of numbers is Python's work, which holds the GIL, and all threads were of one process.
cure:   processes instead of threads.
"""

from __future__ import annotations

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
GOOD_CLUSTER = TWO_BY_ONE
PARTS = 16
ROWS = scaled(130_000)

EXPECTED = Expected(
    cause="the threads of the one process wait for the GIL, which writing CSV holds",
    place="the line of to_csv",
    cure="use processes with a thread each",
    says=r"\bGIL\b",
    places=(*marked(__file__), r"to_csv", r"to_csv_chunk|_write_csv", function("tolls")),
    cures=r"process(es)?\b|fewer threads|threads_per_worker|n_workers|release\w* the GIL|Parquet|binary",
    never={
        COMPUTED_AGAIN: "the table is used once",
        LONGER_TASKS: "tasks take a second",
    },
)


def tolls(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    return pd.DataFrame(
        {
            "plate": rng.integers(0, 1 << 40, ROWS),
            "toll": rng.normal(4.0, 1.0, ROWS),
            "weight": rng.uniform(700.0, 4000.0, ROWS),
            "axles": rng.integers(2, 7, ROWS),
            "speed": rng.normal(60.0, 10.0, ROWS),
        }
    )


def written() -> float:
    table = dd.from_map(tolls, range(PARTS), meta=tolls(0).iloc[:0])
    files = table.to_csv(str(folder("tolls_of_bridges") / "part-*.csv"), index=False)  # <- here
    return float(sum(Path(file).stat().st_size for file in files))


def bad(client: Client) -> float:
    return written()


def good(client: Client) -> float:
    return written()
