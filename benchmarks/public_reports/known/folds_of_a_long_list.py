"""Weights of parcels, a long list in the script, become a bag, of which several folds are computed.

source: dask/dask issue 5014
date:   2019-06-27
seen:   a fold over a bag of a million numbers takes seconds, where another framework takes a fraction of one; a
        persisted bag is as quick.
cause:  the bag's data are a list of the client and part of the graph: each fold pickles it whole, and sends it
        through the scheduler to the workers.
cure:   let tasks make or read the data (or persist the bag, so that the list goes once).
"""

from __future__ import annotations

from operator import add

import dask.bag as db
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
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
DEPOTS, PARCELS = 8, scaled(300_000)

EXPECTED = Expected(
    cause="the list of all weights is in the graph of the bag, and goes from the client to the workers with each"
    " of the"
    " folds",
    place="from_sequence in bad, and the lines with fold and compute",
    cure="make the list in tasks on the workers (map over the depots), or persist the bag",
    says=r"(large|big|huge|heavy|size of (the|your)?|\d+ ?[MG]i?B\w*).{0,25} graph|graph.{0,40}(large|big|size|MB"
    r"|MiB|data|send|sent|pickl|build)"
    r"|(sen[dt]|sending|ship|transfer|upload|move|goes|carr)\w*\b.{0,60}(data|list|values|client|scheduler|graph"
    r"|again|each|every|bytes|MB|MiB)"
    r"|(data|list|values|items|elements).{0,40}(sent|shipped|transferred|in the graph|embedded|from the client)"
    r"|from_sequence"
    r"|pickl|seriali[sz]|tokeni[sz]|\bin the client|client (is|was|spen|takes)|workers?.{0,30}(wait|idle)|embed",
    places=(*marked(__file__), function("bad"), function("facts"), r"from_sequence|\bfold\b|graph|client"),
    cures=r"persist|scatter|(read|load|make|create|generate|build)\w*\b.{0,40}\b(in|on|by|with) (the |a |your"
    r" )?(tasks?|workers?)|in tasks"
    r"|on the workers|from_delayed|from_map|\bmap\b|once\b|smaller graph|read_text|instead of|keep",
    never={
        MORE_WORKERS: "those that there are wait for the client",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        LONGER_TASKS: "the tasks are few",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def of_depot(depot: int) -> list[int]:
    """Weights, in grams."""
    return np.random.default_rng([7, depot]).gamma(2, 2_000, PARCELS).astype(int).tolist()


def heavier(one: int, other: int) -> int:
    return other if other > one else one


def lighter(one: int, other: int) -> int:
    return other if other < one else one


def either(one: int, other: int) -> int:
    return one ^ other


def any_bit(one: int, other: int) -> int:
    return one | other


def facts(weights: db.Bag) -> float:
    total = weights.fold(add, initial=0).compute()  # <- here
    heaviest = weights.fold(heavier, initial=0).compute()  # <- here
    lightest = weights.fold(lighter, initial=10**9).compute()  # <- here
    parity = weights.fold(either, initial=0).compute()  # <- here
    bits = weights.fold(any_bit, initial=0).compute()  # <- here
    return float(total + heaviest - lightest + parity + bits)


def bad(client: Client) -> float:
    listed = [weight for depot in range(DEPOTS) for weight in of_depot(depot)]
    return facts(db.from_sequence(listed, npartitions=DEPOTS))  # <- here


def good(client: Client) -> float:
    return facts(db.from_sequence(range(DEPOTS), npartitions=DEPOTS).map(of_depot).flatten().persist())
