"""Numbers of steps of pilgrims, a long list of the script, are folded in a bag for one question after the other.

source: dask/dask issue 5014
date:   2019-06-27
seen:   the sum of a million numbers in a bag of a sequence takes 3.6 s, ten times as long as in Spark.
cause:  the numbers are part of the graph: they are pickled and sent to the workers with each compute().
cure:   persist the bag (60 ms for the same sum), or make or read the numbers in tasks.
"""

from __future__ import annotations

from itertools import pairwise
from operator import add

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import MORE_MEMORY, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

CLUSTER = TWO_BY_TWO
PILGRIMS = scaled(3_000_000)
PARTS = 6

EXPECTED = Expected(
    cause="the list is in the graph, and goes from the client through the scheduler to the workers with each compute()",
    place="the from_sequence(), or the compute() of the folds",
    cure="persist the bag, or make the numbers in tasks",
    says=r"(large|big|heavy)\b.{0,30}\bgraph|graph\b.{0,60}\b(large|big|data|[MG]i?B|pickl|serializ|sent|send|heavy)"
    r"|pickl|serializ|(data|list|numbers|values|arguments?)\b.{0,40}\b(in|with|part of) the (graph|tasks?)"
    r"|(send|sent|ship|transfer|mov|upload)\w*\b.{0,60}\b(workers?|scheduler|again|each|time)|from_sequence|scatter",
    places=marked(__file__),
    cures=r"persist|scatter|(in|by|on) (the )?(tasks|workers)|read|load|once|from_delayed|files?|keep|together"
    r"|one compute",
    never={MORE_WORKERS: "the workers are idle", MORE_MEMORY: "memory is ample"},
)


def steps() -> list[int]:
    return [n * 7_919 % 40_009 + 300_000 for n in range(PILGRIMS)]


def odd(number: int) -> int:
    return number % 2


QUESTIONS = (add, max, min)


def answers(numbers: db.Bag) -> float:
    total = 0.0
    for question in QUESTIONS:
        total += numbers.fold(question).compute()  # <- here
    total += numbers.map(odd).sum().compute()  # <- here
    total += numbers.count().compute()  # <- here
    return float(total)


def bad(client: Client) -> float:
    numbers = db.from_sequence(steps(), npartitions=PARTS)  # <- here
    return answers(numbers)  # <- here


def steps_between(bounds: tuple[int, int]) -> list[int]:
    return [n * 7_919 % 40_009 + 300_000 for n in range(*bounds)]


def good(client: Client) -> float:
    edges = [PILGRIMS * part // PARTS for part in range(PARTS + 1)]
    bounds = list(pairwise(edges))
    numbers = db.from_sequence(bounds, npartitions=PARTS).map(steps_between).flatten().persist()
    return answers(numbers)
