"""Spots are found in still pictures of crystals, by tasks that tidy up their memory after each picture.

source: dials/dials pull requests 3141 and 3251; of the same kind: dials/dials pull request 2047, invoke-ai/InvokeAI
        pull request 5034, CellProfiler/CellProfiler issue 2125
date:   2026-04-01 and 2026-08-27 (2047: 2022-03-29; 5034: 2023-11-03)
seen:   after a garbage collection for each image was added, to hold memory down, processing takes longer; what is
        visited by the collector are mostly objects that were made at the start and stay.
cause:  gc.collect() goes through all objects of the process, here a large table of known reflections, after each
        picture, and finds hardly anything to free: pictures are arrays, which are freed without it.
cure:   leave the calls out (or call it rarely, or gc.freeze() what stays).
"""

from __future__ import annotations

import gc
from functools import lru_cache

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
BATCHES, PICTURES, SIDE = scaled(14), 24, 400
INDICES = 58

EXPECTED = Expected(
    cause="a full garbage collection after each picture goes through all objects of the process, to no purpose",
    place="gc.collect() in tidy, called from spots_of_batch",
    cure="leave out gc.collect(), or call it rarely, or gc.freeze() what stays",
    says=r"garbage|collector|full collection|(gc|collect\w*)\W+(\w+\W+){0,6}(each|every|after|visits?|all objects"
    r"|again)",
    places=(*marked(__file__), function("tidy"), function("spots_of_batch")),
    cures=r"(no|not|without|remove|drop|leave|rarely|less often|fewer|avoid|skip|stop|instead)\b"
    r".{0,40}(collect|\bgc\b|call)"
    r"|freeze|collect (less|once|rarely|at the end)|fewer objects|(let|leave it to) (python|Dask)",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        COMPUTED_AGAIN: "nothing is computed twice",
    },
)


@lru_cache(maxsize=1)
def reflections() -> dict[tuple[int, int, int], list[float]]:
    """Known reflections by their indices, which a worker makes once and keeps."""
    numbers = range(INDICES)
    return {(h, k, l): [float(h * h + k * k + l * l)] for h in numbers for k in numbers for l in numbers}  # noqa: E741


def picture(batch: int, number: int) -> np.ndarray:
    rng = np.random.default_rng([batch, number])
    return rng.standard_exponential((SIDE, SIDE), dtype=np.float32)


def spots(pixels: np.ndarray) -> float:
    """Brightness of the known reflections under the brightest pixels."""
    table = reflections()
    rows, columns = np.nonzero(pixels > 9)
    return sum(table[row % INDICES, column % INDICES, 7][0] for row, column in zip(rows, columns, strict=True))


def tidy() -> None:
    gc.collect()  # <- here


def spots_of_batch(batch: int, tidies: bool) -> float:
    total = 0.0
    for number in range(PICTURES):
        total += spots(picture(batch, number))
        if tidies:
            tidy()  # <- here
    return total


def bad(client: Client) -> float:
    return sum(client.gather(client.map(spots_of_batch, range(BATCHES), tidies=True)))


def good(client: Client) -> float:
    return sum(client.gather(client.map(spots_of_batch, range(BATCHES), tidies=False)))
