"""Recipes are scored by many short tasks, and the script keeps the best so far, whenever some are done.

source: python/cpython issue 74741; Dask got the same by distributed issue 2108 and pull request 2598
date:   2017-06-02 (issue 2108: 2018-07-11)
seen:   to wait for the first of many, again and again, is very slow, and the more so the more there are.
cause:  each call of wait registers with all that are still pending: for thousands of them, that is work for the event
        loop in the square of their number. The scheduler of a LocalCluster has the same event loop.
cure:   as_completed, which registers with each once.
"""

from __future__ import annotations

import numpy as np
from distributed import Client, as_completed, wait

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
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
RECIPES, PARTS = scaled(1_600), 25_000

EXPECTED = Expected(
    cause="the script waits for the first of all pending futures again and again, which keeps the event loop (the"
    " client's and the scheduler's) busy",
    place="wait(..., return_when='FIRST_COMPLETED') in best_of_all; in the client",
    cure="use as_completed, which waits for each future once",
    says=r"quadratic|square of|(wait\w*|FIRST_COMPLETED)\W+(\w+\W+){0,12}(again|anew|repeated|every time|each time|each"
    r" call|all (of )?(the |pending |remaining )*futures|thousands)|(client|script|scheduler)('s)?\W+(\w+\W+){0,4}"
    r"(event )?loop\W+(\w+\W+){0,6}(busy|blocked|held|slow|full|behind|stall)|event loop\W+(\w+\W+){0,6}(busy|blocked"
    r"|held|stall|slow)|(client|script)\W+(\w+\W+){0,5}(bottleneck|cannot keep up|too slow|busy)",
    places=(*marked(__file__), function("best_of_all")),
    cures=r"as_completed|callback|(fewer|not all)\W+(\w+\W+){0,2}futures|wait\W+(\w+\W+){0,4}(once|less often)|\bbatch",
    never={
        MORE_WORKERS: "those that there are wait for tasks",
        PROCESSES: "those that there are wait for tasks",
        HOLDS_GIL: "it is not in the tasks",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
    },
)


def scored(recipe: int) -> float:
    """Score of a recipe, from the parts it is made of."""
    parts = np.random.default_rng(recipe).random(PARTS)
    return float(np.sort(parts)[: PARTS // 3].mean() + np.sin(parts).std())


def best_of_all(client: Client) -> float:
    """Sum of all scores, and the best one, which is looked at whenever there are new ones."""
    pending = set(client.map(scored, range(RECIPES)))
    total = best = 0.0
    while pending:
        done, pending = wait(pending, return_when="FIRST_COMPLETED")  # <- here
        scores = client.gather(list(done))  # <- here
        total += sum(scores)
        best = max(best, *scores)
    return total + best


def best_as_completed(client: Client) -> float:
    total = best = 0.0
    for batch in as_completed(client.map(scored, range(RECIPES)), with_results=True).batches():
        scores = [score for _, score in batch]
        total += sum(scores)
        best = max(best, *scores)
    return total + best


def bad(client: Client) -> float:
    return best_of_all(client)


def good(client: Client) -> float:
    return best_as_completed(client)
