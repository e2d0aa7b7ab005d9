"""The balance of a gambler at a roulette, for some ways to play.

source: dask/dask issue 5014
date:   2019-06-27
seen:   fold over a bag of a million numbers took ten times as long as in another framework.
cause:  the numbers, made by from_sequence, are in the graph: each computation prepares and sends them all again,
        besides the small work of the fold.
cure:   persist the bag once, so that the workers have the numbers.
"""

from __future__ import annotations

from functools import partial
from operator import add

import dask.bag as db
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
SPINS = scaled(1_200_000)
FAVOURITES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31)

EXPECTED = Expected(
    cause="the list of spins is a part of the graph, which is prepared and sent from the client for each way to play",
    place="the line of from_sequence, or that of the compute in the loop",
    cure="persist the bag once before the loop",
    says=r"\bgraphs?\b.{0,80}(large|big|data|size|\d ?[kMG]i?B)|(large|big).{0,30}graph"
    r"|(data|list|sequence|argument|input|object|value)s?.{0,60}(in|inside|part of|with|into) (the |each |every |its )?"
    r"(graph|task)|(sen[dt]|ship|transfer|upload|pickl|serializ)\w*.{0,60}(again|each|every|scheduler|graph|client)"
    r"|from_sequence|(build|optimi[sz]|prepar)\w*.{0,30}graph"
    r"|(client|script).{0,60}(busy|build|prepar|serializ|pickl|graph)",
    places=(*marked(__file__),),
    cures=r"persist|scatter|\bonce\b|(load|read|creat|generat|mak)\w*.{0,40}(worker|task)"
    r"|keep.{0,40}(worker|cluster|memory)",
    never={
        LONGER_TASKS: "there are six partitions, which are sent whatever their size",
        MORE_WORKERS: "the client prepares and sends the numbers",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def wheel() -> list[int]:
    """Numbers of all spins of an evening, as the casino lists them."""
    return np.random.default_rng(37).integers(0, 37, SPINS).tolist()


def play(balance: int, spin: int, favourite: int) -> int:
    return balance + 35 if spin == favourite else balance - 1


def bad(client: Client) -> float:
    spins = db.from_sequence(wheel(), npartitions=6)  # <- here
    total = 0
    for favourite in FAVOURITES:
        total += spins.fold(partial(play, favourite=favourite), add, initial=0).compute()  # <- here
    return float(total)


def good(client: Client) -> float:
    spins = db.from_sequence(wheel(), npartitions=6).persist()
    total = 0
    for favourite in FAVOURITES:
        total += spins.fold(partial(play, favourite=favourite), add, initial=0).compute()
    return float(total)
