"""A script asks for the length of a table after each of its steps.

source: dask/dask issue 9857; dask/distributed issue 4102
date:   2023-01-20 (4102: 2020-09-10)
seen:   len() of a Dask dataframe takes seconds to hours, each time, in the middle of code that looks as with pandas.
cause:  it computes all steps so far, from reading the files on, and keeps nothing of it.
cure:   persist() what is used again; or compute all lengths at once, at the end.
"""

from __future__ import annotations

import shutil

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, PROCESSES, TWO_BY_TWO, Expected, folder, marked, scaled

CLUSTER = TWO_BY_TWO
FILES, ROWS = 8, scaled(450_000)

EXPECTED = Expected(
    cause="the files are read and parsed again for each len()",
    place="a len() of the table",
    cure="persist(), or all lengths in one dask.compute()",
    says=r"again|repeat|\b(four|4|three|3|several|\d+) times|same results?|more than once",
    places=marked(__file__),
    cures=r"persist|dask\.compute|in one|at once|together|once|keep",
    never={
        r"(?i)lost or released|recomputed": "nothing was lost: the script asked again",
        LONGER_TASKS: "the tasks are long enough",
        PROCESSES: "the cores are busy",
    },
)


def prepare() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 10_000, (ROWS, 4)) / 10_000, columns=["wind", "rain", "sun", "snow"])
    table["station"] = rng.integers(0, 500, ROWS).astype(str)
    first = folder("weather") / "weather-0.csv"
    table.to_csv(first, index=False)
    for number in range(1, FILES):
        shutil.copy(first, folder("weather") / f"weather-{number}.csv")


def bad(client: Client) -> float:
    table = dd.read_csv(str(folder("weather") / "weather-*.csv"))
    read = len(table)  # <- here
    windy = table[table["wind"] > 0.2]
    left = len(windy)  # <- here
    wet = windy[windy["rain"] > 0.5]
    wet_ones = len(wet)  # <- here
    return read + left + wet_ones + len(wet[wet["sun"] > 0.5])  # <- here


def good(client: Client) -> float:
    table = dd.read_csv(str(folder("weather") / "weather-*.csv"))
    windy = table[table["wind"] > 0.2]
    wet = windy[windy["rain"] > 0.5]
    steps = (table, windy, wet, wet[wet["sun"] > 0.5])
    return sum(dask.compute(*(step["wind"].size for step in steps)))
