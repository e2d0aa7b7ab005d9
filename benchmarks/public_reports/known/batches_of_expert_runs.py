"""Rules of drivers are learned from recorded runs, in small random batches.

source: keiohta/tf2rl issue 126; of the same kind: numpy/numpy issue 16268 and pull request 5158
date:   2021-06-02 (issue 16268: 2020-05-17; pull request 5158: 2014-10-07)
seen:   with a million recorded steps, drawing a hundred of them without repetition is so slow that training cannot be
        used; with repetition it is a thousand times as fast.
cause:  np.random.choice with replace=False makes a random order of all numbers of steps, to take the first few of it.
cure:   the newer generators (np.random.default_rng().choice), which draw as many as are wanted; or allow repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

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
DRIVERS, STEPS, SENSORS = scaled(8), 400_000, 6
ROUNDS, BATCH = 230, 64
#: Numbers of the steps of one batch after the other.
Draw: TypeAlias = Callable[[], np.ndarray]

EXPECTED = Expected(
    cause="each batch shuffles the numbers of all recorded steps to take a few of them: choice with replace=False makes"
    " a whole permutation",
    place="the choice in old_draw, called in learn",
    cure="default_rng().choice, which draws only what is wanted; or draw with repetition, or shuffle once per epoch",
    says=r"permut|shuffl|whole (population|array|range)|all (the )?(\w+ )?(numbers|rows|steps|items|elements)"
    r"|without (replacement|repetition)|replace ?= ?false|(draw|sampl|choos|select)\w*\W+(\w+\W+){0,6}(slow|costly"
    r"|expensive|all|whole|each batch|again)|RandomState\W+(\w+\W+){0,6}(slow|old|legacy)|legacy|old (random )?"
    r"(generator|API)",
    places=(*marked(__file__), function("old_draw"), function("learn"), function("rules_of"), function("choice")),
    cures=r"default_rng|Generator\b|new(er)? (random|generator|API)|replace ?= ?true|with (replacement|repetition)"
    r"|integers\(|randint|once (per|for|before)|permut\w+ once|shuffle once|draw (only|fewer)"
    r"|random\.sample|in advance|at once",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take seconds",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        COMPUTED_AGAIN: "nothing is computed twice",
    },
)


def recorded(driver: int) -> tuple[np.ndarray, np.ndarray]:
    """What a driver saw and what it did."""
    rng = np.random.default_rng(driver)
    seen = rng.normal(size=(STEPS, SENSORS)).astype(np.float32)
    return seen, seen @ rng.normal(size=SENSORS).astype(np.float32)


def old_draw(driver: int) -> Draw:
    random = np.random.RandomState(driver)
    return lambda: random.choice(STEPS, BATCH, replace=False)  # <- here


def new_draw(driver: int) -> Draw:
    random = np.random.default_rng(driver)
    return lambda: random.choice(STEPS, BATCH, replace=False)


def learn(seen: np.ndarray, done: np.ndarray, draw: Draw) -> np.ndarray:
    """Weights of the sensors, a step nearer with each batch."""
    weights = np.zeros(SENSORS, np.float32)
    for _ in range(ROUNDS):
        batch = draw()  # <- here
        error = seen[batch] @ weights - done[batch]
        weights -= 0.3 * (seen[batch].T @ error) / BATCH
    return weights


def rules_of(driver: int, draws: Callable[[int], Draw]) -> float:
    seen, done = recorded(driver)
    return float(np.abs(learn(seen, done, draws(driver))).sum())  # <- here


def bad(client: Client) -> float:
    return sum(client.gather(client.map(rules_of, range(DRIVERS), draws=old_draw)))


def good(client: Client) -> float:
    return sum(client.gather(client.map(rules_of, range(DRIVERS), draws=new_draw)))
