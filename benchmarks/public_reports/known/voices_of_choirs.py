"""Features of recorded voices, a large matrix, are brought to mean zero and compared with each other.

source: dask/dask issue 5601
date:   2019-11-19
seen:   statistics of random numbers that Dask makes itself are computed without trouble; with a NumPy array of the same
        size, given to ``from_array``, workers run out of memory and are killed.
cause:  the array is in the graph: the client sends all of it to the scheduler, and that to workers, with each
        computation.
cure:   let the tasks make or read their part of the data where they run (here ``from_delayed`` with parts of the file).
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import LOCK, LONGER_TASKS, TWO_BY_TWO, Expected, folder, marked, scaled

CLUSTER = TWO_BY_TWO
VOICES = scaled(2_500_000)
FEATURES = 40
PART = max(1, VOICES // 16)

EXPECTED = Expected(
    cause="the array is part of the graph: 800 MB are sent from the client to the scheduler with each computation",
    place="from_array of the NumPy array, or the compute() of what is made of it",
    cure="read the parts of the file in tasks (or scatter the data once)",
    says=r"(large|big|heavy|\d+ [kMG]i?B)\b[^.]{0,60}\b(graph|tasks?|scheduler)|graph[^.]{0,60}\b(large|big"
    r"|\d+ [kMG]i?B)"
    r"|carr(y|ies)\b|embed|pickl|serializ|sen[dt]s? (the )?(array|data)|from the client",
    places=(*marked(__file__), r"from_array", r"\bspread\b"),
    cures=r"(load|read|make|creat|generat)\w*[^.]{0,60}(tasks?|workers?|where)|scatter|from_delayed|from_zarr"
    r"|from_map"
    r"|map_blocks|memmap|persist",
    never={
        LONGER_TASKS: "chunks of 50 MB are large enough",
        LOCK: "nobody waits for a lock of the program",
    },
)


def matrix() -> str:
    return str(folder("voices_of_choirs") / "features.npy")


def prepare() -> None:
    """Write the matrix: a row of features for each voice."""
    np.save(matrix(), np.random.default_rng(11).normal(3, 1, (VOICES, FEATURES)))


def rows(path: str, first: int, last: int) -> np.ndarray:
    return np.array(np.load(path, mmap_mode="r")[first:last])


def spread(features: da.Array) -> float:
    """Largest covariance of two features of centred voices, and the smallest deviation."""
    middle = features.mean(axis=0).compute()  # <- here
    widest = (features - middle).std(axis=0).compute()  # <- here
    centred = (features - middle) / widest
    together = (centred.T @ centred).compute()  # <- here
    return float(np.abs(together).sum() / VOICES + widest.min())


def bad(client: Client) -> float:
    return spread(da.from_array(np.load(matrix()), chunks=(PART, FEATURES)))  # <- here


def good(client: Client) -> float:
    path, parts = matrix(), []
    for first in range(0, VOICES, PART):
        last = min(first + PART, VOICES)
        parts.append(da.from_delayed(delayed(rows)(path, first, last), (last - first, FEATURES), "f8"))
    return spread(da.concatenate(parts))
