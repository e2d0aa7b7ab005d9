"""A table is split up by the values of a column, one after the other.

source: dask/dask issue 1191
date:   2016-05-31
seen:   unique values are asked for, and in a loop over them the rows of each are selected and worked on.
cause:  each turn of the loop is a computation of its own, which reads and parses all the files, and drops most rows.
cure:   groupby, which goes through the files once.
"""

from __future__ import annotations

import shutil

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, PROCESSES, TWO_BY_ONE, Expected, folder, marked, scaled

CLUSTER = TWO_BY_ONE
FILES, ROWS, SHOPS = 6, scaled(300_000), 10

EXPECTED = Expected(
    cause="the files are read again for each value of the column",
    place="the computation in the loop",
    cure="groupby (or persist, or one dask.compute)",
    says=r"again|repeat|\b(ten|10|eleven|11|several|many|\d+) times|same (results?|tasks?|files?|data)|more than once"
    r"|read_?csv|each (turn|iteration|computation)|in a loop|for each",
    places=(*marked(__file__), r"read.?csv"),
    cures=r"groupby|persist|dask\.compute|in one|at once|together|once|keep|parquet|single computation",
    never={
        r"(?i)lost or released|recomputed after": "nothing was lost: the script asked again",
        LONGER_TASKS: "the tasks are long enough",
        PROCESSES: "the cores are busy",
    },
)


def prepare() -> None:
    rng = np.random.default_rng(2)
    sales = pd.DataFrame(
        {
            "shop": rng.integers(0, SHOPS, ROWS),
            "price": rng.gamma(2.0, 10.0, ROWS).round(2),
            "count": rng.integers(1, 9, ROWS),
            "rebate": rng.random(ROWS).round(3),
        }
    )
    first = folder("sales") / "sales-0.csv"
    sales.to_csv(first, index=False)
    for number in range(1, FILES):
        shutil.copy(first, folder("sales") / f"sales-{number}.csv")


def paid() -> dd.DataFrame:
    sales = dd.read_csv(str(folder("sales") / "sales-*.csv"), blocksize=None)
    return sales.assign(paid=sales["price"] * sales["count"] * (1 - sales["rebate"]))


def bad(client: Client) -> float:
    table = paid()
    total = 0.0
    for shop in table["shop"].unique().compute():  # <- here
        total += float(table[table["shop"] == shop]["paid"].mean().compute())  # <- here
    return total


def good(client: Client) -> float:
    return float(paid().groupby("shop")["paid"].mean().sum().compute())
