"""A few figures on the bids for lots at an auction.

source: dask/dask issue 5014
date:   2019-06-27
seen:   folding a bag of a million numbers took 3.6 s in Dask, and 0.3 s in Spark.
cause:  the bag is made of a sequence of the client's, so that each computation sends all items within its graph anew,
        pickled; the fold itself takes no time.
cure:   persist the bag: items are sent once, and each fold takes 60 ms.
"""

from __future__ import annotations

from operator import add

import dask.bag as db
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

CLUSTER = TWO_BY_TWO
LOTS = scaled(300_000)
ROUNDS = 5

EXPECTED = Expected(
    cause="each computation carries all items of the bag in its graph, from the client",
    place="the lines of compute, or that of from_sequence",
    cure="persist the bag (or scatter the items, or make them in tasks), so that they are sent once",
    says=r"(large|big|\d+ [kMG]i?B).{0,60}graphs?|graphs?.{0,60}(large|big|data|carr|contain|\d+ [kMG]i?B)"
    r"|from_sequence|\bcarr(y|ies)\b|pickl|serializ|sent? (again|anew|each|every|with)|computed again|in the graph",
    places=(*marked(__file__),),
    cures=r"persist|scatter|\bonce\b|(make|read|load|creat)\w* .{0,30}(in|by|on) (the )?(tasks?|workers?)|one compute"
    r"|at once|together",
    never={
        LONGER_TASKS: "there are a few tasks only, and their time is that of the items' way",
        MORE_WORKERS: "the client and the scheduler have the work",
    },
)


def bids() -> list[tuple[int, float]]:
    prices = np.random.default_rng(3).gamma(2.0, 150.0, LOTS)
    return [(lot, float(price)) for lot, price in enumerate(prices)]


def price_above(bid: tuple[int, float], limit: float) -> float:
    return bid[1] if bid[1] > limit else 0.0


def figures(bag: db.Bag) -> float:
    total = 0.0
    for step in range(ROUNDS):
        total += bag.map(price_above, limit=100.0 * step).fold(add, initial=0.0).compute()  # <- here
    return total


def bad(client: Client) -> float:
    return figures(db.from_sequence(bids(), npartitions=6))  # <- here


def good(client: Client) -> float:
    return figures(db.from_sequence(bids(), npartitions=6).persist())
