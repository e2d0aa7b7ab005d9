"""Ballots are scattered to the workers, one by one, and added up in a task.

source: dask/dask issue 4965
date:   2019-06-19
seen:   a list of ten thousand numbers, scattered, and a sum of it: workers say that their event loop does not
        respond.
cause:  scatter of a list makes a piece of data with a future for each item; each has its message and its bookkeeping,
        and the task that adds them up has as many dependencies, half of which it fetches from the other worker.
cure:   few larger pieces (lists of items in a list, or a bag), or give the list to the task.
"""

from __future__ import annotations

import numpy as np
from distributed import Client, Future

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
BALLOTS, PILE = scaled(34_000), 2_000

EXPECTED = Expected(
    cause="scatter makes thousands of tiny pieces of data, each with a future, a key and messages, on which one"
    " task depends",
    place="client.scatter(ballots()) in bad; the submit of counted, which has all of them as dependencies",
    cure="scatter piles of ballots, or give the list to the task",
    says=r"scatter|(small|tiny|many|thousands of|\d+) (\w+ )?(futures|objects|pieces|items|keys|dependenc\w+|data"
    r"|results|inputs|values|transfers|fetch\w*"
    r"|messages|arguments)|one by one|(each|every|single|per) (item|ballot|value|number|element|object|future"
    r"|piece|key)|overhead"
    r"|fetch|transfer|dependenc|scheduler (is )?(busy|bound|spend)|event loop|in the client|client (is|was|spen"
    r"|takes|work)"
    r"|workers?.{0,30}(wait|idle|nothing)|main (program|thread)|your (script|program)|gather",
    places=(*marked(__file__), function("bad"), function("counted"), r"scatter|client"),
    cures=r"batch|pile|larger|bigger|fewer|one (object|piece|list|future|argument)|list of lists|in one|whole list"
    r"|group|chunk|partition|bag|array|together"
    r"|combine|as (a|one) (list|whole|single)|without scatter|tree|directly|\[\w+\]|(in|on) (the )?(tasks?|workers?)",
    never={
        MORE_WORKERS: "it is the bookkeeping that takes the time",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        COMPUTED_AGAIN: "nothing is computed twice",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def ballots() -> list[int]:
    return np.random.default_rng(10).integers(0, 10_000_000, BALLOTS).tolist()


def counted(votes: list[int]) -> float:
    return float(sum(vote % 97 for vote in votes))


def counted_piles(piles: list[list[int]]) -> float:
    return sum(counted(pile) for pile in piles)


def bad(client: Client) -> float:
    votes: list[Future] = client.scatter(ballots())  # <- here
    return client.submit(counted, votes).result()  # <- here


def good(client: Client) -> float:
    votes = ballots()
    piles = client.scatter([votes[first : first + PILE] for first in range(0, len(votes), PILE)])
    return client.submit(counted_piles, piles).result()
