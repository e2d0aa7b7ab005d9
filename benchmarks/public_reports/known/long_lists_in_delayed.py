"""Delayed functions are called with long lists of numbers.

source: dask/dask issue 1884
date:   2017-01-04
seen:   making a hundred calls of a delayed function takes 11 s if each has a list of 10,000 numbers, before anything
        is computed. The lists themselves are made in 50 ms.
cause:  delayed looks at each element of a list, and again when the graph is made: it might be another delayed object.
cure:   say that there is none (traverse=False), or pass arrays, which are not looked into.

The functions have enough to do for both cores, yet they get it only after the client is through with all lists.
"""

from __future__ import annotations

import dask
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CALLS = scaled(80)
LENGTH = 12_000

EXPECTED = Expected(
    cause="the client looks through a million list elements while it builds the graph",
    place="the call of the delayed function, or the compute()",
    cure="traverse=False, or arrays instead of lists",
    says=r"(build|construct|creat|mak|prepar|optimi[sz]|submi)\w*.{0,40}\bgraph|graph.{0,60}(build|construct"
    r"|creat|made|client)"
    r"|traver|\blists?\b|before (anything|the first|it|any task)|(on|in|by) the client|client('s)? .{0,30}(busy"
    r"|comput|Python|own)",
    places=marked(__file__),
    cures=r"traverse|arrays?|scatter|not (as |in )?lists?|as one object|delayed\(|(load|make|read|build)\w* .*tasks?",
    never={
        MORE_WORKERS: "workers wait for the client",
        LONGER_TASKS: "there are 80 tasks of 30 ms",
        r"(?i)tasks? (that )?holds? the GIL": "tasks compute without it",
    },
)


def positions(call: int) -> list[int]:
    return [(call * 31 + i * i) % 1009 for i in range(LENGTH)]


def highest(values: list[int]) -> int:
    compute_for(0.03)
    return max(values) + len(values) + values[-1]


def bad(client: Client) -> float:
    peak = dask.delayed(highest)
    calls = [peak(positions(call)) for call in range(CALLS)]  # <- here
    return float(sum(dask.compute(*calls)))  # <- here


def good(client: Client) -> float:
    peak = dask.delayed(highest)
    calls = [peak(dask.delayed(positions(call), traverse=False)) for call in range(CALLS)]
    return float(sum(dask.compute(*calls)))
