"""Names of ships in old registers, matched with the names in a list of wrecks.

source: https://www.e-learn.cn/qa/answer/347282/1066387.html
date:   2026-12-01 (seen; its own is not given)
seen:   a loop of pure Python, made parallel with Dask on one machine, was slower than with multiprocessing, and
        hardly faster than a plain loop.
cause:  the work is pure Python, which holds the GIL, and all of it runs in threads of one process: only one of them
        gets on at a time.
cure:   processes, each with one thread.
"""

from __future__ import annotations

import random

from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = {"n_workers": 1, "threads_per_worker": 4}
GOOD_CLUSTER = TWO_BY_ONE
PAGES = scaled(100)
NAMES_OF_PAGE = 22
WRECKS = 400

EXPECTED = Expected(
    cause="pure Python code holds the GIL, so that the four threads of the one worker take turns",
    place="the distance between two names, or the function that calls it, or the line that maps it",
    cure="worker processes with one thread each",
    says=r"\bGIL\b|global interpreter lock|pure.python|interpreter.{0,30}(one|single) thread"
    r"|threads? (take turns|wait for each other|run one (at|after))",
    places=(*marked(__file__), function("distance"), function("nearest"), function("page_of_register")),
    cures=r"process|one thread (each|per worker)|threads_per_worker|fewer threads|nthreads|numba|cython|compiled"
    r"|releases? the GIL|vectori[sz]",
    never={
        COMPUTED_AGAIN: "each page is matched once",
        LOCK: "no lock is used",
        SLEEP: "nothing sleeps",
    },
)

SYLLABLES = (
    "ar",
    "be",
    "cor",
    "dan",
    "el",
    "fa",
    "gre",
    "hal",
    "is",
    "ka",
    "lo",
    "mar",
    "no",
    "or",
    "pel",
    "ros",
    "sa",
)


def names(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return ["".join(dice.choices(SYLLABLES, k=dice.randint(2, 5))) for _ in range(count)]


def distance(one: str, other: str) -> int:
    """Letters to change, to add and to leave out."""
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        left = row
        line = [row]
        for column, its in enumerate(other, 1):
            left = min(left + 1, above[column] + 1, above[column - 1] + (letter != its))
            line.append(left)
        above = line
    return above[-1]


def nearest(name: str, wrecks: list[str]) -> int:
    return min(distance(name, wreck) for wreck in wrecks)  # <- here


def page_of_register(number: int) -> int:
    wrecks = names(WRECKS, seed=0)
    return sum(nearest(name, wrecks) for name in names(NAMES_OF_PAGE, seed=number + 1))


def match(client: Client) -> float:
    pages = client.map(page_of_register, range(PAGES))  # <- here
    return float(sum(client.gather(pages)))


def bad(client: Client) -> float:
    return match(client)


def good(client: Client) -> float:
    return match(client)
