"""Scatter of the weights of seeds on a balance: the sum of squares of what each deviates.

source: dask/distributed issue 2316
date:   2018-10-22
seen:   squares of a list of numbers, scattered and mapped, then summed: the workers of the cluster had nearly nothing
        to do, one of them all of the traffic, and it took far longer than in a loop.
cause:  each number is scattered as a piece of its own, with a task of its own, next to which the work of a task is
        nothing: the time goes to administering them.
cure:   batches of many numbers for each task.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
SEEDS = scaled(18_000)
BATCH = 500

EXPECTED = Expected(
    cause="a task (and a scattered piece of data) for each number: thousands of tasks without work",
    place="the lines that scatter and map, or the function that is mapped",
    cure="batches",
    says=r"(small|short|tiny|brief|many|thousands of)\b.{0,40}\b(tasks?|calls?|pieces)|tasks?\b.{0,30}\b(small"
    r"|short|tiny"
    r"|too many)|overhead|scheduler.{0,40}(busy|limit|bottleneck)|per[- ]task",
    places=(*marked(__file__), function("squared_deviation")),
    cures=r"batch|(larger|bigger|fewer|longer)\b.{0,30}(tasks?|calls?|pieces)|group|several|many (items|values|numbers)"
    r"|combine|partition",
    never={
        COMPUTED_AGAIN: "each square is computed once",
        MORE_WORKERS: "more of them would have as little to do",
        HOLDS_GIL: "the tasks hardly run",
    },
)


def weights() -> list[float]:
    """Weights of all seeds, in milligrams."""
    return np.random.default_rng(23).normal(41.0, 3.0, SEEDS).tolist()


def squared_deviation(weight: float) -> float:
    return (weight - 41.0) ** 2


def squared_deviations(some: list[float]) -> float:
    return sum(squared_deviation(weight) for weight in some)


def bad(client: Client) -> float:
    pieces = client.scatter(weights())  # <- here
    squares = client.map(squared_deviation, pieces)  # <- here
    return float(client.submit(sum, squares).result())  # <- here


def good(client: Client) -> float:
    seeds = weights()
    batches = [seeds[start : start + BATCH] for start in range(0, SEEDS, BATCH)]
    return float(sum(client.gather(client.map(squared_deviations, batches))))
