"""Tallies of storks that passed a mountain, squared and summed.

source: dask/distributed issue 2316
date:   2018-10-22
seen:   a million numbers were scattered, squared by a map over them, and summed: the scheduler did not respond, one
        worker did nearly everything, and the others had nothing to do.
cause:  each number is a value of its own in the cluster and a task of its own: all of the time is overhead.
cure:   scatter and work on a few large lists (or arrays) of numbers.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
HOURS = scaled(18_000)
DAYS = 20

EXPECTED = Expected(
    cause="a scattered value and a task for each number: nothing but overhead",
    place="the line of scatter, that of map, or that of the sum",
    cure="scatter and map over some large lists or arrays",
    says=r"(many|small|short|tiny|little).{0,30}(tasks?|values?|futures?|pieces)"
    r"|tasks? (are|is|were) (too )?(short|small|tiny)|overhead|scheduler.{0,40}busy|scatter",
    places=(*marked(__file__), function("spread")),
    cures=r"(larger?|bigger|longer|fewer|more work).{0,30}(tasks?|lists?|arrays?|pieces|values|futures|each|per)"
    r"|many .{0,30}(in one|per|each|at once)|batch|\bbags?\b|chunk"
    r"|(join|merge|combin|group)\w* .{0,30}(tasks?|values|numbers|calls)",
    never={
        COMPUTED_AGAIN: "each tally is squared once",
        LOCK: "no lock is used",
        MORE_MEMORY: "memory is not short",
        MORE_WORKERS: "the scheduler and the client are the ones that are busy",
    },
)


def tallies() -> list[int]:
    return [int(tally) for tally in np.random.default_rng(11).permutation(HOURS)]


def spread(tally: int) -> float:
    return (tally - 150) ** 2 / 12.0


def spread_of_days(some: list[int]) -> float:
    return sum(spread(tally) for tally in some)


def bad(client: Client) -> float:
    counted = client.scatter(tallies())  # <- here
    spreads = client.map(spread, counted)  # <- here
    return float(client.submit(sum, spreads).result())  # <- here


def good(client: Client) -> float:
    counted = tallies()
    step = -(-len(counted) // DAYS)
    days = client.scatter([counted[start : start + step] for start in range(0, len(counted), step)])
    spreads = client.map(spread_of_days, days)
    return float(client.submit(sum, spreads).result())
