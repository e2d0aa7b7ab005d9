"""Old letters are matched with a register of places, and after each one the memory is tidied up, to be safe.

source: earthaccess-dev/earthaccess issue 499 (its comments of 2024-03); dask/dask issue 3247
date:   2024-03-27
seen:   the memory of workers seems to grow from file to file, so gc.collect() is called by hand at the end of each
        task. It runs through, and slower.
cause:  a full collection looks at all objects of the process, here millions of a register that stays in memory, and
        finds nothing, as the objects of the task were freed when it left them.
cure:   no collection by hand, or a rare one; or gc.freeze() after the register is loaded.
"""

from __future__ import annotations

import gc
from functools import cache

from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
LETTERS = scaled(220)
PLACES, WORDS = 900_000, 2_000

EXPECTED = Expected(
    cause="each task ends with a full garbage collection, which goes through all objects of the process",
    place="the call of gc.collect() in the task",
    cure="leave out the collection, or do it rarely",
    says=r"garbage|\bgc\b",
    places=(*marked(__file__), function("match"), r"gc\.collect"),
    cures=r"garbage|\bgc\b|collect\w*\b.{0,40}(less|rare|once|seldom|fewer|not)|(without|avoid|remove|leave out|drop)"
    r".{0,30}collect|freeze",
    never={
        MORE_WORKERS: "most of the time is not needed",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "there is one thread per process",
        LOCK: "no lock is held by anybody",
    },
)


@cache
def register() -> dict[int, list[int]]:
    """Places by the number of their name, each with its parish and its year."""
    return {place: [place % 5_003, 1_500 + place % 400] for place in range(PLACES)}


def match(letter: int, tidy: bool) -> int:
    """Number of words of a letter that are places of an old enough parish."""
    places = register()
    compute_for(0.01)
    words = [(letter * 7_919 + word * 104_729) % (2 * PLACES) for word in range(WORDS)]
    found = [places[word] for word in words if word in places]
    count = sum(year < 1_700 + letter % 3 for _, year in found)
    del words, found
    if tidy:
        gc.collect()  # <- here
    return count


def matches(client: Client, tidy: bool) -> float:
    return float(sum(client.gather(client.map(match, range(LETTERS), tidy=tidy))))


def bad(client: Client) -> float:
    return matches(client, tidy=True)


def good(client: Client) -> float:
    return matches(client, tidy=False)
