"""A population of candidates is replaced by its offspring in a loop, lazily, and its best is computed each time.

source: dask/dask issue 3902
date:   2018-08-26
seen:   an evolutionary algorithm replaces part of an array in each pass of its loop. Five passes were enough to see the
        array object grow at each pass, and compute() become slower at each.
cause:  the array of a pass is only a recipe on top of that of the pass before; each compute() runs the whole recipe
        from the first generation on.
cure:   persist the array (or compute it) once a pass, so that the next pass starts from values.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
GENERATIONS = scaled(13)
ISLANDS = 8

EXPECTED = Expected(
    cause="each compute() starts at the first generation again: the work of all former passes is repeated, and"
    " the graph"
    " grows with each pass",
    place="the compute() in the loop, or the line that replaces the population, or breed, the work that is repeated",
    cure="persist() the population in each pass, or keep its computed value",
    says=r"again|repeat|recomput|from the (start|beginning|first)|more than once|several times|\d+ times|twice"
    r"|(graph|recipe)s? (that )?(grow|become|get)|same (tasks?|work|results?)|former"
    r"|earlier (passes|steps|computations)",
    places=(*marked(__file__), function("breed")),
    cures=r"persist|keep (the|its|their|each) (\w+ )?(result|value|population|array)|reuse"
    r"|from (its|the) (value|result)"
    r"|compute\w* (it )?(only )?once|cache",
    never={
        LONGER_TASKS: "the tasks are long enough, the same ones are only done again",
        MORE_WORKERS: "all workers are busy, with work that was done before",
    },
)


def breed(island: np.ndarray, generation: int) -> np.ndarray:
    """Replace the worse half of an island by mutants of the better one."""
    compute_for(0.025)
    ranked = np.sort(island)[::-1]
    half = len(ranked) // 2
    mutants = ranked[: len(ranked) - half] + np.random.default_rng(generation).integers(-3, 4, len(ranked) - half)
    return np.concatenate([ranked[:half], mutants])


def first() -> Any:
    return da.arange(ISLANDS * 1000, chunks=1000, dtype=float)


def bad(client: Client) -> float:
    population = first()
    total = 0.0
    for generation in range(GENERATIONS):
        population = population.map_blocks(breed, generation, dtype=float)  # <- here
        total += float(population.max().compute())  # <- here
    return total


def good(client: Client) -> float:
    population = first()
    total = 0.0
    for generation in range(GENERATIONS):
        population = population.map_blocks(breed, generation, dtype=float).persist()
        total += float(population.max().compute())
    return total
