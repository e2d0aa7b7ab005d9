"""How far ants of a colony get from the nest: many random walks on a grid.

source: www.e-learn.cn, answer 347282/1066387 (a copy of questions and answers)
date:   2026-12-01 (seen; its own is not given)
seen:   somebody who compared ways to compute in parallel found Dask much slower than multiprocessing: it was no faster
        than a loop.
cause:  it ran in threads of one process, and a function in pure Python holds the interpreter's lock: only one of the
        threads runs at a time.
cure:   processes instead of threads.
"""

from __future__ import annotations

import random

from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
GOOD_CLUSTER = TWO_BY_ONE
COLONIES = 24
STEPS = scaled(3_600_000)
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))

EXPECTED = Expected(
    cause="pure Python in threads of one process: they wait for each other's GIL",
    place="the function of the walk, or the line that submits it",
    cure="processes (workers with one thread each), or compiled code",
    says=r"\bGIL\b|interpreter.{0,10}lock|pure[- ]Python",
    places=(*marked(__file__), function("farthest")),
    cures=r"process|threads_per_worker|one thread|nthreads|fewer threads|compil|vectori[sz]|numba|cython|numpy",
    never={
        COMPUTED_AGAIN: "each walk is made once",
        LONGER_TASKS: "each task takes half a second",
        SLEEP: "nothing sleeps",
        r"(?im)(^|[.:;])\s*(add|use|start|try) (more|further) threads|too few threads": "threads are the trouble",
    },
)


def farthest(seed: int, steps: int) -> int:
    """The largest distance from the nest that an ant had on its way."""
    ant = random.Random(seed)  # <- here
    east = north = most = 0
    for _ in range(steps):  # <- here
        right, up = MOVES[int(ant.random() * 4)]  # <- here
        east += right  # <- here
        north += up  # <- here
        away = abs(east) + abs(north)  # <- here
        if away > most:
            most = away  # <- here
    return most


def walks(client: Client) -> float:
    ants = client.map(farthest, range(COLONIES), steps=STEPS)  # <- here
    return float(sum(client.gather(ants)))  # <- here


def bad(client: Client) -> float:
    return walks(client)


def good(client: Client) -> float:
    return walks(client)
