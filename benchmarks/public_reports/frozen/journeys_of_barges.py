"""The journeys of barges with the tolls of their locks, joined by barge.

source: dask/distributed issue 5554
date:   2021-12-01
seen:   a merge with shuffle="disk" took 50 minutes, with shuffle="tasks" 2; the dashboard showed idle CPUs.
cause:  each partition is written to files on disk, piece by piece, each time until the disk has it, and under a lock:
        tasks wait for the disk, not for cores.
cure:   the shuffle by tasks (or by the workers' own, the default).
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow", "partd")
CLUSTER = TWO_BY_TWO
PARTS = scaled(30)
ROWS = 8_000
BARGES = 60_000

EXPECTED = Expected(
    cause="the merge shuffles through files on disk, and its tasks wait for the disk",
    place="the line of merge",
    cure='another shuffle method: "tasks" or "p2p"',
    says=r"\bdisk\b|\bfiles?\b|partd|fsync|shuffl",
    places=(*marked(__file__), r"\bmerge\b", r"shuffle.?group", r"partd"),
    cures=r"p2p|\"tasks\"|tasks.{0,10}shuffl|shuffl\w*.{0,40}(method|tasks|memory)|(faster|local|other) disk|default"
    r"|(avoid|without) .{0,20}(shuffl|disk)|set_index|by (the )?index",
    never={
        COMPUTED_AGAIN: "each table is used once",
        MORE_WORKERS: "the workers wait for the disk",
    },
)


def journeys(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(part)
    return pd.DataFrame({"barge": rng.integers(0, BARGES, ROWS), "hours": rng.random(ROWS)})


def locks(part: int) -> pd.DataFrame:
    rng = np.random.default_rng(1000 + part)
    return pd.DataFrame({"barge": rng.integers(0, BARGES, ROWS // 2), "toll": rng.random(ROWS // 2)})


def cost(how: str) -> float:
    left = dd.from_map(journeys, range(PARTS), meta=journeys(0).iloc[:0])
    right = dd.from_map(locks, range(PARTS), meta=locks(0).iloc[:0])
    joined = left.merge(right, on="barge", shuffle_method=how)  # <- here
    return float((joined["hours"] * joined["toll"]).sum().compute())


def bad(client: Client) -> float:
    return cost("disk")  # <- here


def good(client: Client) -> float:
    return cost("tasks")
