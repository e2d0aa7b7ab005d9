"""A bag of a list in the script is folded again and again.

source: dask/dask issue 5014
date:   2019-06-27
seen:   a fold of a bag made from a list of a million items takes 3.6 s each time, while another tool takes 0.3 s.
cause:  the list is in the graph: each compute pickles all items in the client, and sends them to the workers.
cure:   persist the bag once: then the items are on the workers (or make the items there, in tasks).
"""

from __future__ import annotations

import random
from typing import Any

import dask.bag as db
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
FISH = scaled(180_000)
GROUNDS = ("Dogger", "Fladen", "Viking", "Forties", "Fisher", "Bight")

EXPECTED = Expected(
    cause="each fold sends the whole list, pickled, from the client to the workers: that is most of the time",
    place="the from_sequence() in bag_of, or the compute() in heaviest",
    cure="persist the bag (or one compute for all folds, or making the items in tasks)",
    says=r"\bgraph\b|pickl|serializ|\bsen[dt]\b|sending|transfer|travel|large object|argument|from the client"
    r"|\bclient\b|embedded"
    r"|each compute|(sent|computed|made) again|again and again|upload|from_sequence",
    places=(*marked(__file__), function("bag_of"), function("heaviest"), function("from_sequence")),
    cures=r"persist|scatter|\bonce\b|(in|on|from|by) (the |a )?(tasks?|workers?)|one (compute|graph|go)|together"
    r"|futures?\b|read_text"
    r"|from_delayed|(load|read|make|create|generate)\w* (it|them|the data|data)",
    never={
        MORE_WORKERS: "those that there are wait for the client",
        HOLDS_GIL: "one thread a worker",
        LONGER_TASKS: "tasks are not the problem, what is sent with them is",
        MORE_MEMORY: "there is enough",
    },
)


def catch(part: int) -> list[dict[str, Any]]:
    dice = random.Random(part)
    fish = range(FISH // len(GROUNDS))
    return [{"ground": GROUNDS[one % 6], "haul": dice.randrange(40), "grams": dice.random() * 900.0} for one in fish]


def bag_of(fish: list[dict[str, Any]]) -> db.Bag:
    bag: db.Bag = db.from_sequence(fish, npartitions=6)  # <- here
    return bag


def heaviest(bag: db.Bag) -> float:
    total = 0.0
    for ground in GROUNDS:

        def heavier(most: float, fish: dict[str, Any], ground: str = ground) -> float:
            return max(most, fish["grams"]) if fish["ground"] == ground else most

        total += bag.fold(heavier, max, initial=0.0).compute()  # <- here
    return total


def bad(client: Client) -> float:
    return heaviest(bag_of([fish for part in range(6) for fish in catch(part)]))


def good(client: Client) -> float:
    """Make the items in tasks, which takes less than sending them even once."""
    return heaviest(db.from_delayed([delayed(catch)(part) for part in range(6)]))
