"""Entries of ships' logs, which the program has made already, are asked several questions.

source: dask/dask issue 5014
date:   2019-06-27
seen:   fold() of a bag of a million numbers took 3.6 s, where Spark took 0.3 s; after persist() it took 0.06 s.
cause:  the records of from_sequence are in the graph, so each compute() pickles all of them, sends them through the
        scheduler, and unpickles them on the workers. The fold itself is quick.
cure:   persist() the bag once, and ask that.
"""

from __future__ import annotations

from operator import add
from typing import Any

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

CLUSTER = TWO_BY_TWO
ENTRIES = scaled(100_000)
PARTS = 8
SHIPS = 8

EXPECTED = Expected(
    cause="the graph carries all records of the bag, and is pickled and sent again for each question",
    place="from_sequence, or compute() in the loop over the ships",
    cure="persist() the bag once, or make the records on the workers",
    says=r"pickl|seriali[sz]|\bcarr(y|ies)\b|embed|computed again|(sent|send|made|built) again|repeat"
    r"|\b(large|big|heavy|\d+(\.\d+)? [kMG]i?B)\b.{0,50}\b(tasks?|functions?|objects?|graphs?|arguments?)\b",
    places=(*marked(__file__), r"from_sequence"),
    cures=r"persist|scatter|once|(make|load|read|create)\w* .{0,30}(on|in) (the )?(workers?|tasks?)|at once|one compute"
    r"|in one|together",
    never={
        LONGER_TASKS: "the graph has 8 partitions, and is too big for its data alone",
        MORE_WORKERS: "workers wait for the records",
    },
)


def entries() -> list[dict[str, Any]]:
    return [
        {"ship": i % SHIPS, "day": i // 24, "words": [f"wind-{i % 37}", f"sail-{i % 11}", f"sea-{i}"], "miles": i % 90}
        for i in range(ENTRIES)
    ]


def miles_of(entry: dict[str, Any], ship: int) -> int:
    return entry["miles"] * (entry["ship"] == ship)


def miles_of_ships(logs: db.Bag) -> float:
    total = 0
    for ship in range(SHIPS):
        total += (ship + 1) * logs.map(miles_of, ship=ship).fold(add, initial=0).compute()  # <- here
    return float(total)


def bad(client: Client) -> float:
    logs = db.from_sequence(entries(), npartitions=PARTS)  # <- here
    return miles_of_ships(logs)


def good(client: Client) -> float:
    logs = db.from_sequence(entries(), npartitions=PARTS).persist()
    return miles_of_ships(logs)
