"""Logs of boreholes: the mean of a quantity at each hole that a geologist looks at.

source: https://community.opengroup.org/osdu/platform/domain-data-mgmt-services/wellbore/wellbore-domain-services/-/merge_requests/621
date:   2026-12-01 (seen; its own is not given)
seen:   reading the logs of a well through Dask took up to six times as long as reading the same files with pandas, most
        of all where the files were small or had many columns.
cause:  for each small file there is a Dask table, its metadata, a graph and a trip to the scheduler and the workers,
        which takes much longer than reading it.
cure:   read small files with pandas directly.
"""

from __future__ import annotations

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
HOLES = scaled(150)
DEPTHS = 500
CURVES = 60

EXPECTED = Expected(
    cause="a small computation for each hole: preparing it and waiting for it takes longer than reading the file",
    place="the line that reads and computes a log, one after the other",
    cure="read small files with pandas, without Dask, or all of them in one computation",
    says=r"overhead|(small|short|tiny|many|single).{0,40}(tasks?|computations?|computes?|graphs?|files?|partitions?)"
    r"|(one|each|every).{0,60}(at a time|after (another|the other)|in turn|wait)|idle|\bgraphs?\b|latency|round.?trip"
    r"|(client|script).{0,60}(busy|build|prepar|optimi[sz]|graph|between|wait|alone)",
    places=(*marked(__file__), function("mean_of")),
    cures=r"\bonce\b|batch|together|pandas|without Dask|directly|one (compute|graph|call|task)|fewer|delayed|from_map"
    r"|submit|client\.map|in (the )?tasks?",
    never={
        MORE_WORKERS: "the workers have next to nothing to do",
        MORE_MEMORY: "the files are small",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def prepare() -> None:
    place = folder("boreholes")
    rng = np.random.default_rng(44)
    for hole in range(HOLES):
        log = pd.DataFrame(rng.random((DEPTHS, CURVES)), columns=[f"curve {number}" for number in range(CURVES)])
        log.to_parquet(place / f"hole-{hole:04d}.parquet")


def holes() -> list[Path]:
    return sorted(folder("boreholes").glob("*.parquet"))


def mean_of(hole: Path) -> float:
    """Mean of what the curves of a hole add up to at each depth."""
    log = dd.read_parquet(hole)
    return float(log.sum(axis=1).mean().compute())  # <- here


def bad(client: Client) -> float:
    return sum(mean_of(hole) for hole in holes())  # <- here


def good(client: Client) -> float:
    return sum(float(pd.read_parquet(hole).sum(axis=1).mean()) for hole in holes())
