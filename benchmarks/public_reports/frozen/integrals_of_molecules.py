"""Integrals of molecules are turned from atomic into molecular orbitals by a sum over four matrices.

source: numpy/numpy issue 8301; of the same kind: numpy/numpy pull request 5488 and issue 22604
date:   2016-11-23 (pull request 5488: 2015-01-23)
seen:   a product of three matrices by einsum takes several times as long as two products of two, and the more, the
        larger they are.
cause:  by default einsum goes through all indices of all operands in one nest of loops, instead of multiplying two
        operands at a time, which needs far fewer operations and can use BLAS.
cure:   optimize=True, or one operand after the other.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

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
MOLECULES, ATOMIC, MOLECULAR = scaled(48), 44, 10

EXPECTED = Expected(
    cause="einsum with several operands, without optimize, goes through all combinations of all indices in one loop",
    place="the einsum in turned",
    cure="optimize=True, or contract two operands at a time",
    says=r"optimi[sz]e ?= ?(false|true)|(without|not|no)\b.{0,20}optimi[sz]|(operands|indices)\W+(\w+\W+){0,6}(at a"
    r" time|at once|all|one loop|pairwise|together)|all (the )?(combinations|indices|operands)|naive|intermediate"
    r"|contract|order of (the )?(product|contraction|multiplication)s?"
    r"|(far|many|too many|more)\W+(\w+\W+){0,2}operations|(not|no|without|instead of)\b.{0,20}\bBLAS",
    places=(*marked(__file__), function("turned"), function("energy_of"), function("einsum")),
    cures=r"optimi[sz]e|two (operands )?at a time|pairwise|tensordot|matmul|\bBLAS|contract|einsum_path"
    r"|one (operand )?after the other|in steps|matrix product",
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


def integrals_of(molecule: int) -> tuple[np.ndarray, np.ndarray]:
    """Integrals over atomic orbitals, and which of them make the molecular ones."""
    rng = np.random.default_rng(molecule)
    return rng.normal(size=(ATOMIC,) * 3), rng.normal(size=(ATOMIC, MOLECULAR))


def turned(integrals: np.ndarray, mix: np.ndarray, optimize: bool) -> np.ndarray:
    return np.einsum("pqr,pi,qj,rk->ijk", integrals, mix, mix, mix, optimize=optimize)  # <- here


def energy_of(molecule: int, optimize: bool) -> float:
    integrals, mix = integrals_of(molecule)
    return float(np.abs(turned(integrals, mix, optimize)).sum())  # <- here


def bad(client: Client) -> float:
    return sum(client.gather(client.map(energy_of, range(MOLECULES), optimize=False)))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(energy_of, range(MOLECULES), optimize=True)))
