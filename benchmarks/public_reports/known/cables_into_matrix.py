"""Cables of power grids are entered into sparse matrices, one grid a task, to find out how current spreads.

source: theislab/sfaira issue 198; of the same kind: CLIMADA-project/climada_python issue 1238, scipy/scipy pull
        request 3582
date:   2021-03-24 (1238: 2026-01-21; 3582: 2014-04-26)
seen:   SciPy warns, in the middle of a run, that it is expensive to change the structure of a matrix in rows, and that
        another format is better for it.
cause:  each cable is set as an element of a CSR matrix: where there was a zero, all elements that follow are moved to
        make room, in new arrays, for every single cable.
cure:   gather rows, columns and values, and make the matrix of them at once (coo), or fill a lil or dok matrix.
"""

from __future__ import annotations

import warnings

import numpy as np
from distributed import Client
from scipy import sparse  # type: ignore[import-untyped]

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
NEEDS = ("scipy",)
GRIDS, NODES, CABLES = scaled(28), 4000, 8000

EXPECTED = Expected(
    cause="elements are set one by one in a CSR matrix, which is built anew for each new element",
    place="the assignment to an element in entered_one_by_one",
    cure="build the matrix at once from lists (coo), or use lil or dok",
    says=r"sparse|csr|setitem|element by element|one (element|cable|value|by one|at a time)|(sett|insert"
    r"|assign)(ing|s|ed)?\W"
    r"+(\w+\W+){0,4}(element|value|item|matrix)|(element|value|item)s?\W+(\w+\W+){0,4}(set|insert|assign)|structure"
    r"|_set_(many|array|int)\w*|_insert_many|(changes|changing|rebuil|copi)\w*\W+(\w+\W+){0,4}matrix",
    places=(
        *marked(__file__),
        function("entered_one_by_one"),
        function("__setitem__"),
        r"_insert_many|_set_many|_set_int\w+|_set_array\w+",
    ),
    cures=r"\bcoo|\blil|\bdok|at once|lists?\b|in one (go|call|step)|vectori|arrays? of|(other|another) format"
    r"|together|batch",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take seconds",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        COMPUTED_AGAIN: "nothing is computed twice",
    },
)


def cables(grid: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ends of the cables of a grid, no two between the same nodes, and how well they conduct."""
    rng = np.random.default_rng([13, grid])
    places = rng.choice(NODES * NODES, CABLES, replace=False)
    return places // NODES, places % NODES, rng.uniform(0.5, 2.0, CABLES)


def entered_one_by_one(grid: int) -> sparse.csr_matrix:
    matrix = sparse.csr_matrix((NODES, NODES))
    for start, end, conducts in zip(*cables(grid), strict=True):
        matrix[start, end] = conducts  # <- here
    return matrix


def entered_at_once(grid: int) -> sparse.csr_matrix:
    starts, ends, conduct = cables(grid)
    return sparse.coo_matrix((conduct, (starts, ends)), shape=(NODES, NODES)).tocsr()


def spread(grid: int, one_by_one: bool) -> float:
    """Sum of the current after a number of steps through the grid."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sparse.SparseEfficiencyWarning)
        matrix = entered_one_by_one(grid) if one_by_one else entered_at_once(grid)  # <- here
    current = np.ones(NODES)
    for _ in range(10):
        current = 0.5 * current + 0.1 * (matrix @ current)
    return float(current.mean())


def bad(client: Client) -> float:
    return sum(client.gather(client.map(spread, range(GRIDS), one_by_one=True)))


def good(client: Client) -> float:
    return sum(client.gather(client.map(spread, range(GRIDS), one_by_one=False)))
