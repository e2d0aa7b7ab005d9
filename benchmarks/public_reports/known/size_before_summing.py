"""A cleaning script asks for partitions of a certain size, after which it sums up.

source: dask/community issue 301
date:   2023-01-20
seen:   a simple workflow on taxi rides takes far longer than its steps should, and a new round of work is seen on the
        cluster at lines that only describe the next step.
cause:  to make partitions of a size in bytes, repartition computes the sizes there are: everything from reading on,
        and keeps none of it; the last computation then does it once more.
cure:   a number of partitions, or none at all; or persist what is needed twice.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, PROCESSES, TWO_BY_ONE, Expected, folder, marked, scaled

CLUSTER = TWO_BY_ONE
FILES, ROWS, TIMES = 8, scaled(200_000), 8

EXPECTED = Expected(
    cause="repartition(partition_size=...) computes all steps so far, to know the sizes",
    place="a repartition, or the final compute",
    cure="repartition(npartitions=...), or persist()",
    says=r"repartition|partition_?size|memory_usage|again|repeat|twice|\b(four|4|three|3|several|\d+) times|same result"
    r"|more than once|comput\w+ (at once|eagerly|early)|read_?csv",
    places=(*marked(__file__), r"repartition", r"read.?csv"),
    cures=r"npartitions|persist|keep|once|avoid|without|instead of|parquet|in one|remove|fewer|usecols|columns",
    never={
        r"(?i)lost or released|recomputed after": "nothing was lost: the script asked again",
        LONGER_TASKS: "the tasks are long enough",
        PROCESSES: "the cores are busy",
    },
)


def prepare() -> None:
    rng = np.random.default_rng(7)
    rides = pd.DataFrame(
        {
            "miles": rng.gamma(2.0, 2.0, ROWS).round(3),
            "minutes": rng.gamma(3.0, 5.0, ROWS).round(3),
            "fare": rng.gamma(4.0, 4.0, ROWS).round(2),
            "tip": rng.gamma(1.0, 2.0, ROWS).round(2),
            "zone": rng.integers(0, 260, ROWS),
        }
    )
    head, _, lines = rides.to_csv(index=False).partition("\n")
    for number in range(FILES):
        (folder("rides") / f"rides-{number}.csv").write_text(head + "\n" + lines * TIMES)


def rides() -> dd.DataFrame:
    return dd.read_csv(str(folder("rides") / "rides-*.csv"), blocksize=None)


def with_speed(table: dd.DataFrame) -> dd.DataFrame:
    table = table[table["miles"] > 0.5]
    return table.assign(speed=table["miles"] / table["minutes"] * 60)


def with_share(table: dd.DataFrame) -> dd.DataFrame:
    table = table[table["speed"] < 90]
    return table.assign(share=table["tip"] / table["fare"])


def bad(client: Client) -> float:
    table = with_share(with_speed(rides())).repartition(partition_size="40MB")  # <- here
    return float(table["share"].sum().compute())  # <- here


def good(client: Client) -> float:
    return float(with_share(with_speed(rides()))["share"].sum().compute())
