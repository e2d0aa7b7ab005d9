"""A clustering looks for its first centres, with computations that a library has tied to one scheduler.

source: dask/dask-ml issue 933
date:   2022-05-27
seen:   with a distributed client, parts of the library (make_classification, k_means) warn that a single-machine
        scheduler is used though a client is active.
cause:  the library calls compute(scheduler="single-threaded"), so that this part is computed in the script's own
        process, by one thread, while the workers of the cluster have nothing to do.
cure:   compute without naming a scheduler, so that the client's cluster does it.
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
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
BLOCKS, ROWS, FEATURES, CENTRES = scaled(30), 15_000, 24, 8

EXPECTED = Expected(
    cause="the distances are computed in the client's own process by a single-threaded scheduler, and not by the"
    " workers, which are idle",
    place="the call compute(scheduler='single-threaded') in farthest, called from first_centres; in the client",
    cure="leave out scheduler=, so that the cluster computes it",
    says=r"\bclient\b|single-?thread|single-?machine|synchronous|(local|own|other) scheduler|scheduler=|\bidle|nothing"
    r" to (do|run)|without work|no (work|tasks)|(not|no|outside)\b.{0,30}\b(workers?|cluster|tasks?)\b|main (program"
    r"|thread|process)|\bscript|your (own )?(program|process)",
    places=(*marked(__file__), function("farthest"), function("first_centres"), function("sample"), function("apart")),
    cures=r"scheduler|(on|to|by|with|use) (the |your )?(workers?|cluster|client)|client\.|\bsubmit|as (a )?tasks?"
    r"|in(to)?"
    r" (a )?tasks?|move\b|distributed",
    never={
        MORE_WORKERS: "those that there are have nothing to do",
        PROCESSES: "those that there are have nothing to do",
        HOLDS_GIL: "it is not in the tasks",
        LONGER_TASKS: "the workers have no tasks",
        MORE_MEMORY: "there is enough",
    },
)


def sample(block_info: dict | None = None) -> np.ndarray:
    rng = np.random.default_rng(block_info[None]["chunk-location"][0])
    group = rng.integers(0, CENTRES, ROWS)
    return rng.normal(0, 1, (ROWS, FEATURES)) + group[:, None] * 3


def samples() -> da.Array:
    chunks = ((ROWS,) * BLOCKS, (FEATURES,))
    return da.map_blocks(sample, chunks=chunks, dtype=float, meta=np.empty((0, 0)))


def apart(block: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Robust distance of each row to its nearest centre, with the row's number in the block."""
    distances = np.full(len(block), np.inf)
    buffer = np.empty_like(block)
    for centre in centres:
        np.subtract(block, centre, out=buffer)
        np.log1p(np.abs(buffer, out=buffer), out=buffer)
        np.minimum(distances, buffer.sum(axis=1), out=distances)
    place = distances.argmax()
    return np.concatenate([[distances[place]], block[place]])[None]


def farthest(rows: da.Array, centres: np.ndarray, **options: str) -> np.ndarray:
    """Row of the samples that is farthest from these centres."""
    chunks = ((1,) * rows.numblocks[0], (FEATURES + 1,))
    candidates = rows.map_blocks(apart, centres, chunks=chunks, dtype=float).compute(**options)  # <- here
    return candidates[candidates[:, 0].argmax(), 1:]


def first_centres(rows: da.Array, **options: str) -> np.ndarray:
    centres = np.zeros((1, FEATURES))
    while len(centres) <= CENTRES:
        centres = np.vstack([centres, farthest(rows, centres, **options)])  # <- here
    return centres[1:]


def bad(client: Client) -> float:
    return float(first_centres(samples(), scheduler="single-threaded").sum())  # <- here


def good(client: Client) -> float:
    return float(first_centres(samples()).sum())
