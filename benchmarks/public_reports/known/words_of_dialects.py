"""Some words of some villages are taken from a matrix of dialects.

source: scverse/anndata pull request 1432 (it came from scverse/scanpy pull request 2856)
date:   2024-03-21
seen:   choosing genes of a matrix that is a Dask array takes far longer than it does with an array of NumPy.
cause:  rows and columns are given to vindex as a grid of points: each of the millions of points is looked up by itself.
cure:   choose rows, and then columns, by plain indexing.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
WORDS, VILLAGES = 6_000, 6_000
CHUNK = 1_000
CHOSEN = scaled(4_500)

EXPECTED = Expected(
    cause="vindex looks up each point of the grid by itself, and the numbers of the points are in the graph",
    place="the vindex[], or the compute() of what it gives",
    cure="index rows and columns one after the other",
    says=r"vindex|point ?wise|fancy|index(ing|es)?\b|each (point|element|value)|point by point|slic(e|ing)"
    r"|(large|big)\b.{0,20}\bgraph|graph\b.{0,40}\b(large|big|[MG]i?B)",
    places=marked(__file__),
    cures=r"rows\b.{0,40}\bcolumns|one (axis|dimension)|axis|slice|plain index|\bx?\[|orthogonal|outer"
    r"|instead of vindex"
    r"|without vindex|not .{0,20}vindex|blocks|mask",
    never={
        MORE_WORKERS: "much of it is done by the client",
        PROCESSES: "much of it is done by the client",
        LOCK: "there is none",
        MORE_MEMORY: "memory is ample",
    },
)


def uses_of_words(block_info: Any = None) -> np.ndarray:
    row, column = block_info[None]["chunk-location"]
    return np.random.default_rng(row * 1_000 + column).random((CHUNK, CHUNK))


def dialects() -> da.Array:
    chunks = ((CHUNK,) * (WORDS // CHUNK), (CHUNK,) * (VILLAGES // CHUNK))
    uses: da.Array = da.map_blocks(uses_of_words, chunks=chunks, dtype=float)
    return uses


def choice() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    return np.sort(rng.choice(WORDS, CHOSEN, replace=False)), np.sort(rng.choice(VILLAGES, CHOSEN, replace=False))


def bad(client: Client) -> float:
    words, villages = choice()
    chosen = dialects().vindex[np.ix_(words, villages)]  # <- here
    return float(chosen.sum().compute())  # <- here


def good(client: Client) -> float:
    words, villages = choice()
    chosen = dialects()[words][:, villages]
    return float(chosen.sum().compute())
