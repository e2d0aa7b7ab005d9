"""Elections are counted again and again with ballots drawn by chance, to see how sure the seats are.

source: Stack Overflow, a question that compares pieces of parallel code in Python with multiprocessing and with
        dask.delayed (with its answer also on e-learn.cn, qa 347282)
date:   2021-01-01 or later (the answer names the pages of documentation of that time)
seen:   a loop of calls that do not depend on each other is slower with dask.delayed than with multiprocessing, as if
        it ran one after the other.
cause:  calls are plain Python, which holds the GIL, and all of them are in threads of one process.
cure:   processes with one thread each instead of threads.

Here a call is a count of an election with transfer of votes, and threads are those of a worker.
"""

from __future__ import annotations

import random

import dask
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
GOOD_CLUSTER = TWO_BY_ONE
ELECTIONS = 32
BALLOTS, CANDIDATES = scaled(60_000), 14

EXPECTED = Expected(
    cause="counts are plain Python and hold the GIL, so that the two threads of the worker take turns",
    place="counted, which its tasks run, or the computation",
    cure="two processes with one thread each, or a count without loops of Python",
    says=r"\bGIL\b|global interpreter lock|interpreter|(plain|pure)[- ]Python|Python (code|bytecode|loops?)"
    r"|one thread at a time|threads? (take|taking) turns|threads of (one|the same|a single) process",
    places=(*marked(__file__), function("counted"), function("first_choice"), function("seats")),
    cures=r"process(es)?\b|threads_per_worker|nthreads|(one|single|1|fewer) threads?|vectori[sz]|numpy|numba|cython"
    r"|releas",
    never={
        r"(?im)(^|[.:;])\s*(add|use|start|try) (more |further )?threads": "they would take turns as well",
        LONGER_TASKS: "tasks take a large part of a second",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each count runs once",
        SLEEP: "nothing sleeps",
    },
)


def first_choice(ballot: list[int], out: set[int]) -> int:
    for candidate in ballot:
        if candidate not in out:
            return candidate
    return -1


def counted(seed: int) -> float:
    """Share of votes of the last candidate but one, after votes of those that are out were transferred."""
    chance = random.Random(seed)
    names = list(range(CANDIDATES))
    ballots = []
    for _ in range(BALLOTS):
        chance.shuffle(names)
        ballots.append(names[:10])
    out: set[int] = set()
    while len(out) < CANDIDATES - 2:
        votes = [0] * (CANDIDATES + 1)
        for ballot in ballots:  # <- here
            votes[first_choice(ballot, out)] += 1  # <- here
        left = [candidate for candidate in range(CANDIDATES) if candidate not in out]
        out.add(min(left, key=lambda candidate: (votes[candidate], candidate)))
    return sum(votes[candidate] for candidate in range(CANDIDATES) if candidate not in out) / BALLOTS


def seats() -> float:
    counts = [dask.delayed(counted)(seed) for seed in range(ELECTIONS)]
    return float(sum(dask.compute(*counts)))  # <- here


def bad(client: Client) -> float:
    return seats()  # <- here


def good(client: Client) -> float:
    return seats()
