"""A geyser's record of years is numbered row by row, and a script cuts its eruptions out of it.

source: dask/dask issue 11260 (first dask/community issue 390)
date:   2024-07-29
seen:   in a loop, some fifteen rows are taken by loc from a large frame and computed. Each takes 22 s, where less than
        a second would do; it grows with the size of the frame, not of the slice.
cause:  the frame got its continuous index by a cumulative sum, and is lazy: each slice reads and sums all that lies
        before it, again for each event.
cure:   persist the frame after it got its index (or write it), or compute all slices in one go.
"""

from __future__ import annotations

import io

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
MONTHS, ROWS, EVENTS = 16, 30_000, scaled(14)
META = pd.DataFrame({"height": pd.Series(dtype=float), "heat": pd.Series(dtype=float)})

EXPECTED = Expected(
    cause="each of the slices is a computation of its own, which reads and numbers the record again",
    place="the compute() of a slice in the loop, or month, which is read again for each",
    cure="persist the numbered record, or compute all slices together",
    says=r"(again|anew|twice|repeated(ly)?|more than once|several times|many times|\d+ times|times over|not kept|thrown"
    r" away|re-?(comput|calculat|run|read|load|pars)\w*|same (tasks?|work|computation|function|key)|many (small )?"
    r"comput\w*|\d+ computations|(one|each|every|per) (computation|compute|slice|event)"
    r"|one (at a time|by one|after)|in turn)",
    places=(*marked(__file__), function("month"), function("numbered"), function("cut_one_by_one")),
    cures=r"persist|once\b|together|one (compute|computation|go)|single compute|dask\.compute|keep|cache|store|write"
    r"|map_partitions|reuse",
    never={
        MORE_WORKERS: "they would do the same work as often",
        MORE_MEMORY: "the record is small",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "there is one a core",
        LOCK: "there is none",
    },
)


def month(number: int) -> pd.DataFrame:
    """Record of a month, from text."""
    rng = np.random.default_rng([11, number])
    heights, heats = rng.gamma(1.2, 4.0, ROWS).round(3).tolist(), rng.normal(90.0, 4.0, ROWS).round(2).tolist()
    text = "\n".join(f"{height};{heat}" for height, heat in zip(heights, heats, strict=True))
    return pd.read_csv(io.StringIO(text), sep=";", names=["height", "heat"])


def numbered() -> dd.DataFrame:
    """The record, with a number for each row."""
    record = dd.from_map(month, range(MONTHS), meta=META)
    record["row"] = 1
    record["row"] = record["row"].cumsum() - 1
    divisions = [*range(0, MONTHS * ROWS, ROWS), MONTHS * ROWS - 1]
    indexed: dd.DataFrame = record.set_index("row", sorted=True, divisions=divisions)
    return indexed


def starts() -> list[int]:
    return [at * MONTHS * ROWS // (EVENTS + 1) for at in range(1, EVENTS + 1)]


def cut_one_by_one(record: dd.DataFrame) -> float:
    total = 0.0
    for start in starts():
        eruption = record.loc[start : start + 15].compute()  # <- here
        total += float(eruption["height"].max() * eruption["heat"].mean())
    return total


def bad(client: Client) -> float:
    return cut_one_by_one(numbered())  # <- here


def good(client: Client) -> float:
    return cut_one_by_one(numbered().persist())
