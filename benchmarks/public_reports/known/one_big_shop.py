"""After a shuffle one partition has most of the rows, as most rows have the same key.

source: dask/dask-expr issue 417; like cases: dask/dask issue 8769, coiled/benchmarks pull request 883
date:   2023-11-22 (the like cases 2022-03-02 and 2023-06-14)
seen:   tables are shuffled on a column in which a few values are far more frequent than all others. In the end one
        worker works (or runs out of memory) while the others have long been done.
cause:  all rows with the same key go to the same partition, so one partition, and one task, has most of the work.
cure:   a finer key: the work is for each day of a shop, so shuffle on the shop and the day.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
MONTHS = 12
DAYS = scaled(360)
ROWS = 20_000
SMALL_SHOPS = 12

EXPECTED = Expected(
    cause="one partition has most rows, those of the big shop, so one task takes most of the time while the rest is"
    " done",
    place="the shuffle, or the map_partitions of score, or the long task of score",
    cure="shuffle on shop and day, or else split the big partition",
    says=r"\bskew|imbalanc|unbalanc|uneven|straggl|\bone (\w+ )?(partition|task|key)\b|one (worker|thread) (is|was"
    r"|has|works?|runs?)|(longest|slowest|largest|biggest) (task|partition)|(much |far |\d+ times )?(longer|larger"
    r"|slower) than|(a |very )?(few|single) (long|large)|same (key|value)|(hot|frequent) (key|value)|long task"
    r"|last task|tail\b",
    places=(*marked(__file__), function("score"), r"(?i)shuffle|p2p"),
    cures=r"\bsplit|\bfiner\b|\bsmaller (task|partition|piece|part)|(another|other|more|second|both|different"
    r"|better) (key|column)|\bsalt|balanc|\bdivide|\beven(ly)?\b|several tasks|more than one column|(shop"
    r"|key) and (the )?day|partition size",
    never={
        LONGER_TASKS: "one task is too long already",
        MORE_WORKERS: "they would wait for the same task",
        HOLDS_GIL: "one thread a worker",
    },
)


def sales(month: int) -> pd.DataFrame:
    random = np.random.default_rng(month)
    big = random.random(ROWS) < 0.9
    days = np.arange(ROWS) % DAYS
    return pd.DataFrame(
        {
            "shop": np.where(big, 0, 1 + random.integers(0, SMALL_SHOPS, ROWS)),
            # Small shops are open on a few days only.
            "day": np.where(big, days, days % 5),
            "amount": random.integers(1, 9, ROWS),
        }
    )


def score(frame: pd.DataFrame) -> pd.DataFrame:
    best = 0
    for _, day in frame.groupby(["shop", "day"]):
        compute_for(0.025)
        best += int(day["amount"].max())
    return pd.DataFrame({"best": [best]})


def score_all(keys: list[str]) -> float:
    frame = dd.from_map(sales, range(MONTHS))
    scores = frame.shuffle(keys, npartitions=16).map_partitions(score, meta={"best": int})  # <- here
    return float(scores["best"].sum().compute())  # <- here


def bad(client: Client) -> float:
    return score_all(["shop"])  # <- here


def good(client: Client) -> float:
    return score_all(["shop", "day"])
