"""Partial results are added up one after the other, each sum waiting for the one before.

source: dask-contrib/dask-histogram pull request 120; a like case: dask/dask issue 2668
date:   2024-01-28 (the like case 2017-09-08)
seen:   many histograms are filled in parallel and added up. While they are added, one thread works and the rest of the
        cluster has nothing to do.
cause:  the loop adds each histogram to the sum so far, so the additions are one long chain of tasks.
cure:   add pairs, then pairs of the sums, and so on (a tree), so that most additions do not wait for each other.
"""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
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
FILES = scaled(64)

EXPECTED = Expected(
    cause="the additions are a chain of tasks, of which each waits for the one before",
    place="the line of the loop that adds, or the tasks of merge",
    cure="a tree of additions",
    says=r"\bchain|one (task |addition )?(after (the other|another)|at a time|by one)|in turn|\bsequen|serial"
    r"|critical path|longest path|depend(s|ed|ing)? on (the|each|one)|wait\w* for (each|the (previous|last|one)|one"
    r"|another|its|their)|(no|little|not enough|too little|lack of|limited) parallel|(only )?one (task"
    r"|thread)\b.{0,40}(ready|runs?|at)|nothing (else )?(to do|to run|ready|runnable)|(few|no) (other )?tasks (were "
    r"|are )?(ready|runnable)",
    places=(*marked(__file__), function("merge")),
    cures=r"\btree\b|\bpairs?\b|reduc|\bfold\b|combine .{0,40}(groups|several|parallel|partial)|several at once"
    r"|split_every|independent|in (groups|parallel)|(break|shorten|split) .{0,30}chain|shorter chain|sum\w* of (a "
    r"|the )?(list|all)|all at once|together",
    never={
        MORE_WORKERS: "the chain leaves even one of two without work",
        LONGER_TASKS: "additions take 0.2 s",
        HOLDS_GIL: "one thread a worker, and no work that holds it",
    },
)


def fill(file: int) -> np.ndarray:
    compute_for(0.03)
    return np.bincount(np.arange(5_000) * (file + 1) % 997, minlength=997)


def merge(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    compute_for(0.2)
    merged = left.copy()
    merged += right
    return merged


def bad(client: Client) -> float:
    filled = [dask.delayed(fill)(file) for file in range(FILES)]
    total: Any = filled[0]
    for one in filled[1:]:
        total = dask.delayed(merge)(total, one)  # <- here
    return float(total.compute().max())  # <- here


def good(client: Client) -> float:
    sums: list[Any] = [dask.delayed(fill)(file) for file in range(FILES)]
    while len(sums) > 1:
        pairs = zip(sums[::2], sums[1::2], strict=False)
        sums = [dask.delayed(merge)(*pair) for pair in pairs] + sums[len(sums) // 2 * 2 :]
    return float(sums[0].compute().max())
