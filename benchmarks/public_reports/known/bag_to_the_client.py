"""A bag of Python objects is computed into the client.

source: dask/dask issue 1707
date:   2016-10-25
seen:   reading a text file of 500 MB with a bag took 2:37 min and 8 GB, a dataframe 4 s; a profile showed mostly
        serialization.
cause:  not the reading: .compute() pickles millions of small Python objects on the workers, sends them, and unpickles
        them in the client.
cure:   reduce on the workers, and fetch only the result: .count().compute() took 5 s.
"""

from __future__ import annotations

import json

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import PROCESSES, TWO_BY_TWO, Expected, folder, marked, scaled

CLUSTER = TWO_BY_TWO
FILES = 8
LINES = scaled(12_000)

EXPECTED = Expected(
    cause="all objects are results: they go to the client, which unpickles them",
    place="the compute() of the bag",
    cure="reduce on the workers, and fetch only the result",
    says=r"(client|gather).*(result|object|bytes|MB|data|gather|receiv|unpickl)"
    r"|(result|object|bytes|MB|data|receiv|unpickl).*(client|gather)",
    places=marked(__file__),
    cures=r"reduce|aggregat|on the (workers|cluster)|only (the |what)|fetch (less|only|fewer)|smaller results?"
    r"|keep .*(workers|cluster)",
    never={
        r"(?i)more threads|fewer threads": "threads of workers wait for the client",
        PROCESSES: "the client is one process",
        r"(?i)longer tasks|small-tasks|tasks are too small": "eight tasks are not too small",
    },
)


def prepare() -> None:
    for i in range(FILES):
        lines = (
            json.dumps({"page": f"/articles/{n * 7919 % 100_003}", "seconds": n % 97, "user": f"u{n * 31 % 50_021}"})
            for n in range(i * LINES, (i + 1) * LINES)
        )
        (folder("clicks") / f"clicks-{i}.json").write_text("\n".join(lines) + "\n")


def clicks() -> db.Bag:
    return db.read_text(str(folder("clicks") / "clicks-*.json")).map(json.loads)


def bad(client: Client) -> float:
    everything = clicks().compute()  # <- here
    return sum(click["seconds"] for click in everything)


def good(client: Client) -> float:
    return clicks().pluck("seconds").sum().compute()
