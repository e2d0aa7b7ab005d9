"""Smells are told apart from signals of an electronic nose: components of the signals first, then a regression.

source: cognoma/machine-learning issue 94
date:   2017-05-26
seen:   a grid search over a pipeline is very slow if the transformations are part of what is validated, as they should
        be.
cause:  for each candidate of the grid, the pipeline is fitted from its start: the same transformation of the same fold,
        though candidates differ in the last step only.
cure:   fit the transformation once for a fold, and let candidates share that (dask-searchcv does; so does a memory).
"""

from __future__ import annotations

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SNIFFS, SENSORS, KEPT, FOLDS = 1600, 280, 60, 2
PENALTIES = [0.01 * 1.5**power for power in range(scaled(18))]

EXPECTED = Expected(
    cause="each candidate fits the components of its fold again, which are the same for all candidates",
    place="components in score_of, or the delayed calls of score_of, or their compute()",
    cure="a task for the components of each fold, whose result the candidates share",
    says=r"(again|anew|twice|repeated(ly)?|more than once|several times|many times|\d+ times|times over|redundan\w*"
    r"|duplicat\w*|re-?(comput|calculat|run|fit|do)\w*|same (work|computation|function|result|components|argument|input"
    r"|fold|data|call)|(each|every|per) (candidate|penalty|task|call)|identical)|svd|components|decomposition",
    places=(*marked(__file__), function("score_of"), function("components"), function("svd"), function("search")),
    cures=r"once\b|share|cache|memo|reuse|keep|persist|(own|one|separate|single) task|task of its own|before"
    r"|out of (the )?(loop|task|function)|pull|hoist|delayed|per fold|scatter",
    never={
        MORE_WORKERS: "they would do the same work as often",
        MORE_MEMORY: "the data are small",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
    },
)


def fold_of(fold: int) -> tuple[np.ndarray, np.ndarray]:
    """Signals of a fold and their smells."""
    rng = np.random.default_rng([94, fold])
    smells = rng.normal(size=SNIFFS)
    return rng.normal(size=(SNIFFS, SENSORS)) + smells[:, None] * np.linspace(-1, 1, SENSORS), smells


def components(fold: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Signals of a fold in their strongest components."""
    signals = fold[0] - fold[0].mean(axis=0)
    left, sizes, _ = np.linalg.svd(signals, full_matrices=False)  # <- here
    kept: np.ndarray = left[:, :KEPT] * sizes[:KEPT]
    return kept


def error(parts: np.ndarray, fold: tuple[np.ndarray, np.ndarray], penalty: float) -> float:
    """Error of a regression with a penalty, in the second half of a fold."""
    half, smells = SNIFFS // 2, fold[1]
    normal = parts[:half].T @ parts[:half] + penalty * np.eye(KEPT)
    weights = np.linalg.solve(normal, parts[:half].T @ smells[:half])
    return float(((parts[half:] @ weights - smells[half:]) ** 2).mean())


def score_of(fold: tuple[np.ndarray, np.ndarray], penalty: float) -> float:
    return error(components(fold), fold, penalty)  # <- here


def bad(client: Client) -> float:
    folds = [dask.delayed(fold_of)(fold) for fold in range(FOLDS)]
    errors = [dask.delayed(score_of)(fold, penalty) for fold in folds for penalty in PENALTIES]  # <- here
    return float(sum(dask.compute(*errors)))  # <- here


def good(client: Client) -> float:
    errors = []
    for fold in [dask.delayed(fold_of)(fold) for fold in range(FOLDS)]:
        parts = dask.delayed(components)(fold)
        errors += [dask.delayed(error)(parts, fold, penalty) for penalty in PENALTIES]
    return float(sum(dask.compute(*errors)))
