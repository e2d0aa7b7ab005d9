"""Toy keys of a course in ciphers are broken: four parts of the candidates are searched at once, until one has it.

source: dask/distributed issue 2617; of the same kind: dask/dask issues 1183 and 6500
date:   2019-04-17 (issue 1183: its comments of 2018-03-15; issue 6500: 2020-08-10)
seen:   running tasks are cancelled, and vanish from what the scheduler shows; yet they go on, and tasks that come after
        them wait for their threads.
cause:  cancelling forgets a task, but cannot stop a function that runs already: it keeps its thread to the end.
cure:   let the tasks look at a flag now and then, and end when it is set (or search in small pieces).
"""

from __future__ import annotations

from itertools import count

import numpy as np
from distributed import Client, Event, as_completed

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    PROCESSES,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
KEYS, PARTS = scaled(16), 4
LIMIT, STEP = 720_000_000, 1_000_000
PART = LIMIT // PARTS

EXPECTED = Expected(
    cause="searches that were cancelled run on to their end, and keep the threads that the next searches need",
    place="the cancel in broken, of tasks of divisor",
    cure="let the tasks look at a flag (an Event or a Variable) and stop, or search in smaller tasks",
    says=r"cancel|abandon|discard|(no longer|not|never) (wanted|needed|used|asked for)|unused|nobody (wants|needs"
    r"|waits)"
    r"|forgotten|forgot|(results?|outcome)\W+(\w+\W+){0,5}(not used|never used|thrown away|lost|wasted|dropped"
    r"|released)"
    r"|(still|keeps?|kept|continues?|continued|go(es)? on|went on|ran on)\W+(\w+\W+){0,4}(run|running|comput\w+"
    r"|work\w*)"
    r"|for nothing|in vain|wasted (work|time|cpu)|work that (nobody|no one)|released while",
    places=(*marked(__file__), function("broken"), function("divisor")),
    cures=r"flag|\bevent\b|variable|signal|check\w*|look\w* (at|for|whether)|return early|stop (early|itself"
    r"|themselves)"
    r"|end (early|itself|themselves)|(small|short)(er)? (tasks|pieces|parts|steps)|split|in (pieces|steps|slices)"
    r"|cooperat\w+|let (the )?(tasks?|function)|deadline|time ?out",
    never={
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
        LONGER_TASKS: "tasks take seconds",
        PROCESSES: "they work without the GIL",
        MORE_MEMORY: "there is enough",
    },
)


def prime_from(number: int) -> int:
    """First prime that is not less."""
    divisors = np.arange(3, 40_000, 2)
    return next(each for each in count(number | 1, 2) if not np.any(each % divisors == 0))


def keys() -> list[int]:
    """Products of a prime that is early in one of the parts, and of one beyond all of them."""
    beyond = prime_from(LIMIT)
    return [prime_from(PART * (key % PARTS) + PART // 12 + 1_000 * key) * beyond for key in range(KEYS)]


def divisor(number: int, low: int, flag: str) -> int:
    """Divisor in a part of the candidates, or 0."""
    stop = Event(flag) if flag else None
    for start in range(low | 1, low + PART, 2 * STEP):
        if stop is not None and stop.is_set():
            break
        candidates = np.arange(max(start, 3), min(start + 2 * STEP, low + PART), 2)
        hits = candidates[number % candidates == 0]
        if hits.size:
            return int(hits[0])
    return 0


def broken(client: Client, number: int, flag: str) -> int:
    """Smaller one of the two primes."""
    searches = [client.submit(divisor, number, PART * part, flag, pure=False) for part in range(PARTS)]
    found = next(found for _, found in as_completed(searches, with_results=True) if found)
    if flag:
        Event(flag).set()
    client.cancel(searches)  # <- here
    return int(found)


def bad(client: Client) -> float:
    return float(sum(broken(client, number, "") for number in keys()))


def good(client: Client) -> float:
    return float(sum(broken(client, number, f"found-{number}") for number in keys()))
