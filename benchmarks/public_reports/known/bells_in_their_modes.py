"""The stiffness of a bell is expressed in its first modes, by a product of three matrices in one einsum.

source: numpy/numpy issue 8301; numpy/numpy pull request 5488 (the option that is the cure)
date:   2016-11-23
seen:   a chain of three matrices in one call of einsum takes many times as long as two calls with two matrices each.
cause:  einsum goes through all indices of all operands in one loop, with an inner sum for each entry of the result; it
        does not sum over one index first and reuse that, unless it is told to look for a good order.
cure:   optimize=True, or two products one after the other.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
NODES, CHUNK = 4_000, 1_000
MODES = scaled(44)

EXPECTED = Expected(
    cause="einsum multiplies the three matrices in one loop over all indices, without products of two in between",
    place="the call of einsum, its tasks, or the computation",
    cure="optimize=True, or one product after the other",
    says=r"einsum|contract|three (matrices|operands|arrays)|all (indices|operands)|order of (the )?(products?|multipl)"
    r"|intermediate|pairwise",
    places=(*marked(__file__), r"einsum"),
    cures=r"optimi[sz]e|contract|pair|two (steps|products|calls)|one (product )?after the other|matmul|\bdot\b"
    r"|tensordot|multi_dot|@|BLAS|einsum_path|order of|intermediate",
    never={
        LONGER_TASKS: "the tasks are long enough",
        MORE_WORKERS: "most of the operations are not needed",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "there is one thread per process",
        LOCK: "no lock is held by anybody",
    },
)


def springs(block_info: dict[Any, Any] | None = None) -> np.ndarray:
    """Block of the matrix of stiffness between the nodes of the bell."""
    (first, last), (left, right) = block_info[None]["array-location"] if block_info else ((0, 1), (0, 1))
    distance = np.abs(np.arange(first, last)[:, None] - np.arange(left, right)[None, :])
    values: np.ndarray = np.exp(-distance / 200.0)
    return values


def shapes(block_info: dict[Any, Any] | None = None) -> np.ndarray:
    """Deflection of a block of nodes in all modes."""
    first, last = block_info[None]["array-location"][0] if block_info else (0, 1)
    return np.cos(np.outer(np.arange(first, last) / NODES, np.arange(MODES)) * np.pi)


def matrices() -> tuple[da.Array, da.Array]:
    nodes = (CHUNK,) * (NODES // CHUNK)
    empty = np.empty((0, 0))
    stiffness = da.map_blocks(springs, chunks=(nodes, nodes), dtype=float, meta=empty)
    modes = da.map_blocks(shapes, chunks=(nodes, (MODES,)), dtype=float, meta=empty)
    return stiffness, modes


def bad(client: Client) -> float:
    stiffness, modes = matrices()
    reduced = da.einsum("ia,ij,jb->ab", modes, stiffness, modes)  # <- here
    return float((reduced**2).sum().compute())  # <- here


def good(client: Client) -> float:
    stiffness, modes = matrices()
    reduced = da.einsum("ia,ij,jb->ab", modes, stiffness, modes, optimize=True)
    return float((reduced**2).sum().compute())
