"""A function is applied to the rows of a dataframe, one by one.

source: dask/dask issue 5994 (the same in 4344, 3948)
date:   2020-03-09
seen:   an apply over 1.5 million rows takes 22 s in pandas, and 43 s with Dask.
cause:  the row function is Python: it makes a Series of each row and holds the GIL, so threads take turns.
cure:   write it for whole columns, which pandas and numpy compute without the GIL. (The maintainers' other advice,
        processes, is in place here already: there are as many as cores, so still more of them save nothing.)
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    PROCESSES,
    TWO_BY_TWO,
    WAITS_FOR_CORES,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PARTITIONS, ROWS = 16, scaled(80_000)

EXPECTED = Expected(
    cause="Python by row, in DataFrame.apply(axis=1)",
    place="the apply(), or its function",
    cure="whole columns",
    says=r"(by|each|every|per|for) row|row by row|axis=1|Python (by|for|code|bytecode)|in Python\b|interpreted",
    places=(*marked(__file__), function("body_mass_index")),
    cures=r"whole columns|columns at once|vectori[sz]|instead of (rows|apply)|numba|numpy",
    never={
        PROCESSES: "there are as many processes as cores",
        r"string\[pyarrow\]": "there is no text",
        WAITS_FOR_CORES: "with fewer threads it takes as long: both cores compute",
        LONGER_TASKS: "16 tasks take a second each",
    },
)


def sample(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"height": rng.normal(1.7, 0.1, ROWS), "weight": rng.normal(70, 10, ROWS)})


def people() -> dd.DataFrame:
    return dd.from_map(sample, range(PARTITIONS), meta=sample(0).head(0))


def body_mass_index(row: pd.Series) -> float:
    return row["weight"] / row["height"] ** 2  # <- here


def bad(client: Client) -> float:
    index = people().apply(body_mass_index, axis=1, meta=("bmi", "f8"))  # <- here
    return float(index.mean().compute())  # <- here


def good(client: Client) -> float:
    frame = people()
    return float((frame["weight"] / frame["height"] ** 2).mean().compute())
