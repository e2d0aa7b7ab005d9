"""Counts of molecules follow from counts of reactions by a product of matrices.

source: CovertLab/wcEcoli issue 100; explained in numpy/numpy issue 14556
date:   2018-02-19 (issue 14556: 2019-09-20)
seen:   a nightly run takes 18 hours instead of 15 after matrices of small numbers became integers.
cause:  products of integer matrices do not go to BLAS, but to a plain loop, which takes some dozen times as long.
cure:   multiply as float64, which is exact for numbers of that size.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
MOLECULES, REACTIONS = 700, 600
STEPS = scaled(100)
CELLS = 220

EXPECTED = Expected(
    cause="the product is of integer matrices, for which numpy does not use BLAS",
    place="changes, where it multiplies, or where the stoichiometry is made",
    cure="multiply as floats",
    says=r"integers?\b|\bint(8|16|32|64)?\b|dtypes?\b|data types?|\bBLAS\b|\bfloats?\b",
    places=(*marked(__file__), function("changes"), function("stoichiometry"), r"matmul|tensordot|\bdot\b"),
    cures=r"float|astype|\bBLAS\b|convert",
    never={
        LONGER_TASKS: "a task takes a second",
        MORE_WORKERS: "the cores are busy",
        MORE_MEMORY: "all of it is small",
        HOLDS_GIL: "a worker has one thread",
    },
)


def stoichiometry() -> np.ndarray:
    """Molecules that a reaction makes or takes."""
    rng = np.random.default_rng(7)
    return rng.integers(-2, 3, (MOLECULES, REACTIONS)) * (rng.random((MOLECULES, REACTIONS)) < 0.05)


def reactions(block_info: dict | None = None) -> np.ndarray:
    """Reactions of each cell in a step."""
    step = block_info[None]["chunk-location"][0]
    return np.random.default_rng(step).poisson(40.0, (1, REACTIONS, CELLS))


def counts() -> da.Array:
    chunks = ((1,) * STEPS, (REACTIONS,), (CELLS,))
    return da.map_blocks(reactions, chunks=chunks, dtype="i8", meta=np.empty((0, 0, 0), "i8"))


def changes(happened: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Molecules that a step makes or takes in all, by kind."""
    made = matrix @ happened[0]  # <- here
    return np.abs(made).sum(axis=1)[np.newaxis]


def activity(matrix: np.ndarray) -> float:
    by_step = counts().map_blocks(changes, matrix, chunks=(1, MOLECULES), drop_axis=2, dtype=matrix.dtype)  # <- here
    return float(by_step.sum().compute())  # <- here


def bad(client: Client) -> float:
    return activity(stoichiometry())  # <- here


def good(client: Client) -> float:
    return activity(stoichiometry().astype(float))
