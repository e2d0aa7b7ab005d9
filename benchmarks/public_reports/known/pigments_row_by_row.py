"""Each mixture of pigments, a row of four numbers, becomes a delayed task of its own.

source: dask/dask issue 5044
date:   2019-07-02
seen:   a loop over the rows of a small table needs a few milliseconds; with a delayed call for each row it is more
        than ten times slower.
cause:  a task does some microseconds of work, while making, sending, scheduling and gathering one costs hundreds of
        microseconds.
cure:   give a task many rows (a batch in a loop), so that there are few tasks.
"""

from __future__ import annotations

import dask
import numpy as np
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
MIXTURES = scaled(5_500)
BATCH = 500

EXPECTED = Expected(
    cause="there are thousands of tasks of some microseconds each: the time goes into the overhead of tasks, in"
    " the client"
    " and the scheduler",
    place="hue, the delayed calls in the loop of bad, or the compute() there",
    cure="fewer, longer tasks: many rows in each",
    says=r"overhead|(too )?many (small |tiny |short )*tasks|(tiny|small|short|brief) tasks|tasks? (is|are) (too "
    r"|very )?"
    r"(short|small|tiny|brief)|number of tasks|scheduler|scheduling|\bgraph\b|microseconds|granular|per task|each task",
    places=(*marked(__file__), function("hue"), function("bad")),
    cures=r"batch|longer tasks|fewer( \w+)? tasks|larger tasks|bigger tasks|several|many (rows|calls|items|inputs)"
    r"|group"
    r"|together|more work|coarser|chunk|partition",
    never={
        MORE_WORKERS: "those that there are have next to nothing to do",
        HOLDS_GIL: "the tasks take no time",
        MORE_MEMORY: "next to none is used",
        COMPUTED_AGAIN: "each is computed once",
    },
)


def hue(mixture: np.ndarray) -> float:
    squares = mixture**2
    return float(np.sin(1.0 / (1.0 + np.exp(-squares))).sum())


def hues(mixtures: np.ndarray) -> list[float]:
    return [hue(mixture) for mixture in mixtures]


def shares() -> np.ndarray:
    return np.random.default_rng(5).random((MIXTURES, 4))


def bad(client: Client) -> float:
    table = shares()
    results = [delayed(hue)(table[number]) for number in range(len(table))]  # <- here
    return float(sum(dask.compute(*results)))  # <- here


def good(client: Client) -> float:
    table = shares()
    results = [delayed(hues)(table[first : first + BATCH]) for first in range(0, len(table), BATCH)]
    return sum(sum(batch) for batch in dask.compute(*results))
