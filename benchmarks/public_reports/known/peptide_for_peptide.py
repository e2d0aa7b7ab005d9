"""Masses of peptides: each of many thousands is submitted as a task of its own.

source: dask/distributed issue 2181
date:   2018-08-14
seen:   a map over a very long list of small calls takes minutes until it starts, and more until it ends; the same
        list in batches (a bag with some hundred records in each partition) is quick.
cause:  each call is a task, with its messages and its bookkeeping in client, scheduler and worker, which take many
        times as long as the call.
cure:   batches: a task for hundreds of records.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

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
PEPTIDES, BATCH = scaled(6_000), 500
LETTERS = "ACDEFGHIKLMNPQRSTVWY"
MASSES = {letter: 57.0 + 7.31 * number for number, letter in enumerate(LETTERS)}

EXPECTED = Expected(
    cause="thousands of tasks that take microseconds each, so that scheduling and messages take nearly all of the time",
    place="client.map(mass, ...) in bad, one task for each peptide; the function mass",
    cure="handle many peptides in a task",
    says=r"(small|short|tiny|little|many|number of|thousands of|\d+) (\w+ )?tasks|tasks?.{0,30}(small|short|tiny"
    r"|brief|quick|microsec"
    r"|millisec|\bms\b)|overhead|scheduler (is )?(busy|bound|limit|can|spend)|schedul\w* (cost|take|spend|time)"
    r"|per.task"
    r"|(each|every) task",
    places=(*marked(__file__), function("mass"), function("bad")),
    cures=r"batch|longer tasks|larger tasks|bigger tasks|fewer (but )?(\w+ )?tasks|(many|several|hundreds|more)"
    r" .{0,30}(in|per|a|each) "
    r"(one )?(task|call)|group|chunk|partition|bag|more work|combine|together|merge",
    never={
        MORE_WORKERS: "it is the scheduling that takes the time",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        COMPUTED_AGAIN: "each is computed once",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def peptides() -> list[str]:
    rng = np.random.default_rng(12)
    letters = np.array(list(LETTERS))
    return ["".join(letters[rng.integers(0, len(LETTERS), 12)]) + str(number) for number in range(PEPTIDES)]


def mass(peptide: str) -> float:
    """Mass of a peptide, the number at its end left out."""
    return 18.01 + sum(MASSES.get(letter, 0.0) for letter in peptide)


def masses(peptides: list[str]) -> list[float]:
    return [mass(peptide) for peptide in peptides]


def bad(client: Client) -> float:
    futures = client.map(mass, peptides())  # <- here
    return float(sum(client.gather(futures)))  # <- here


def good(client: Client) -> float:
    all_ = peptides()
    batches = [all_[first : first + BATCH] for first in range(0, len(all_), BATCH)]
    return float(sum(map(sum, client.gather(client.map(masses, batches)))))
