"""Catches of anglers are rated, each by its own delayed call.

source: dask/dask issue 5044
date:   2019-07-02
seen:   a loop over rows of a table takes 6 ms in plain Python, and 75 ms with delayed calls.
cause:  each call is a task, and costs more than the few microseconds of its work.
cure:   give each call many rows.
"""

from __future__ import annotations

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
CATCHES = scaled(5_000)
PIECES = 8

EXPECTED = Expected(
    cause="thousands of tasks of some microseconds: the overhead for each of them is nearly all of the time",
    place="the delayed call in the loop, or the compute() of them all; function rating",
    cure="give many rows to each task",
    says=r"overhead|scheduler.{0,40}(busy|bottleneck|limit|keep up|cpu)|little work|microseconds"
    r"|(many|thousands of|too|very|so|tiny|small|short|brief) (\w+ ){0,2}(tasks|calls)"
    r"|(tasks?|calls)\b.{0,20}\b(too |very |so )?(small|short|tiny|brief|many)"
    r"|(per|for each|of each|each) (task|row|call)|(longer|larger|bigger|fewer) (and \w+ )?tasks"
    r"|tasks? (longer|larger|bigger)",
    places=(*marked(__file__), function("rating")),
    cures=r"batch|group|combine|merge|chunk|together|several|more work|(fewer|larger|longer|bigger)\b.{0,40}\btasks?"
    r"|tasks? (longer|larger|bigger)|(many|more) .{0,40}(in|per|to|for) (a|each|one|every) (task|call)",
    never={
        MORE_WORKERS: "the workers are idle",
        HOLDS_GIL: "the work of a task is nothing",
        PROCESSES: "the work of a task is nothing",
        MORE_MEMORY: "memory is ample",
    },
)


def rating(fish: np.ndarray) -> float:
    """Rating of weight, length, age and rarity of a fish."""
    squares = fish**2
    return float(np.sin(1 / (1 + np.exp(-squares))).sum())


def ratings(catch: np.ndarray) -> list[float]:
    return [rating(fish) for fish in catch]


def catches() -> np.ndarray:
    return np.random.default_rng(11).random((CATCHES, 4))


def bad(client: Client) -> float:
    results = [dask.delayed(rating)(fish) for fish in catches()]  # <- here
    return float(sum(dask.compute(*results)))  # <- here


def good(client: Client) -> float:
    results = [dask.delayed(ratings)(catch) for catch in np.array_split(catches(), PIECES)]
    return float(sum(sum(part) for part in dask.compute(*results)))
