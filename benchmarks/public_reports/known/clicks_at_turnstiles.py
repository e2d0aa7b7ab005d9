"""The passages at turnstiles, counted from their text logs.

source: dask/dask issue 1707
date:   2016-10-25
seen:   reading a text of 500 MB as a bag, to the client, took more than two minutes; as a table it took four seconds.
cause:  not the reading: compute brings all lines to the client, as hundreds of thousands of small Python objects that
        are pickled by the workers and made again by the client. Counting them on the workers took five seconds.
cure:   reduce on the workers, and bring only the result.
"""

from __future__ import annotations

import dask.bag as db
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
FILES = 8
LINES = scaled(25_000)

EXPECTED = Expected(
    cause="all records are brought to the client, pickled and unpickled, where they are summed",
    place="the line of compute",
    cure="sum on the workers, and bring only the sums",
    says=r"(to|at|by|in|on) the (client|script)|client.{0,60}(gather|receiv|unpickl|deserial|collect|download)"
    r"|gather|deserial|unpickl|large results?|results?.{0,30}\d+ [MG]i?B",
    places=(*marked(__file__),),
    cures=r"on the (workers?|cluster)|reduc|aggregat|only (the )?(result|sum|what|small)|\bsum\b|\bfold\b|less data"
    r"|smaller results?",
    never={
        COMPUTED_AGAIN: "the text is read once",
        LONGER_TASKS: "tasks take a second",
        MORE_WORKERS: "the client alone is busy at the end",
    },
)


def paths() -> list[str]:
    return [str(folder("clicks_at_turnstiles") / f"gate-{i}.txt") for i in range(FILES)]


def prepare() -> None:
    """Write lines of time, gate, ticket and number of persons."""
    for i, path in enumerate(paths()):
        persons = np.random.default_rng(i).integers(1, 5, LINES)
        with open(path, "w") as log:
            log.writelines(f"{j};north-{j % 17};ticket {j * 7919};{n}\n" for j, n in enumerate(persons))


def parsed(line: str) -> dict[str, object]:
    second, gate, ticket, persons = line.rstrip().split(";")
    return {"second": int(second), "gate": gate, "ticket": ticket, "persons": int(persons), "tags": [gate, ticket]}


def persons_of(passage: dict) -> int:
    return passage["persons"]


def bad(client: Client) -> float:
    passages = db.read_text(paths()).map(parsed).compute()  # <- here
    return float(sum(map(persons_of, passages)))


def good(client: Client) -> float:
    return float(db.read_text(paths()).map(parsed).map(persons_of).sum().compute())
