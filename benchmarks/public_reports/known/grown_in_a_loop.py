"""A dask array is made longer by one block at a time, in a loop.

source: pydata/xarray issue 5381 (a lazy result that grows in a loop, in quadratic time); of the same kind: dask/dask
        issue 2895 (each addition to a graph that is large already is slower)
date:   2021-05-26 (the other 2017-12-02)
seen:   putting together some hundreds of lazy blocks takes longer and longer with each; the time passes in the client
        before anything runs, while the workers wait.
cause:  each concatenate of what there is with one more block makes tasks for all the blocks so far: the graph has
        a number of tasks that grows with the square of the number of blocks.
cure:   collect the blocks in a list, and concatenate once.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
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
SWEEPS = scaled(700)
LENGTH = 10_000

EXPECTED = Expected(
    cause="the graph is built up by concatenating in a loop: the client makes, optimizes and sends tasks whose number"
    " grows with the square of the number of sweeps, while the workers wait",
    place="the concatenate() in the loop; the compute()",
    cure="one concatenate of a list of all blocks",
    says=r"\bgraph\b|client\b|(too )?many tasks|number of tasks|tasks (that|which) (do|only)|concatenat"
    r"|quadratic|\bloop\b"
    r"|\bidle|nothing to (do|run)|scheduler|overhead|optimi[sz]",
    places=(*marked(__file__), function("concatenate"), function("bad")),
    cures=r"concatenat\w*\b.{0,60}\bonce\b|\bonce\b|\blist\b|fewer tasks|smaller graph|one (call|concatenate"
    r"|compute|go)|out(side)? of the loop"
    r"|after the loop|collect|at the end|together|simpl(er|ify)|da\.block|da\.stack|from_delayed|without (the )?loop",
    never={
        MORE_WORKERS: "they wait",
        PROCESSES: "they wait",
        HOLDS_GIL: "it is not in the tasks",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each sweep is computed once",
    },
)


def sweep(number: int) -> np.ndarray:
    return np.sort(np.random.default_rng(number).normal(size=LENGTH))


def sweeps() -> list[da.Array]:
    return [da.from_delayed(delayed(sweep)(number), (LENGTH,), dtype=float) for number in range(SWEEPS)]


def spread(record: da.Array) -> float:
    return float(record.std().compute())  # <- here


def bad(client: Client) -> float:
    blocks = sweeps()
    record = blocks[0]
    for block in blocks[1:]:
        record = da.concatenate([record, block])  # <- here
    return spread(record)


def good(client: Client) -> float:
    return spread(da.concatenate(sweeps()))
