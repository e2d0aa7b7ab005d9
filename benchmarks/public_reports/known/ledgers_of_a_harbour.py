"""The ledgers of a harbour: how many tons were unloaded in all years.

source: dask/dask issue 1707
date:   2016-10-25
seen:   reading a text file of half a gigabyte with bag.read_text took minutes and gigabytes of memory, while read_csv
        of the same file took seconds.
cause:  reading was fast: all lines, as Python strings, were pickled and brought from the workers to the client, one by
        one, because the bag was computed as a whole.
cure:   keep the lines on the workers, and compute there what is wanted of them (a count, a sum).
"""

from __future__ import annotations

import dask.bag as db
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
YEARS = 20
ENTRIES = scaled(12_000)
GOODS = ("timber", "herring", "wool", "salt", "iron", "hemp")

EXPECTED = Expected(
    cause="all lines are fetched by the client, as Python strings, which takes longer than reading them",
    place="the line that computes the bag",
    cure="add up the tons on the workers, and fetch only the sum",
    says=r"(fetch|gather|collect|transfer|bring|brought|pull|return|receiv|deliver|download|move)\w*"
    r".{0,80}(client|script|results?)"
    r"|(client|script).{0,60}(fetch|gather|collect|receiv|transfer|download|deserializ|unpickl)"
    r"|serializ|pickl|results?.{0,40}(large|big|MB|MiB|GB|GiB|to the client)|(large|big) results?",
    places=(*marked(__file__),),
    cures=r"reduc|aggregat|\bsums?\b|count|(on|in) the workers?|in (the )?tasks?"
    r"|before (fetch|gather|collect|comput)|smaller|fewer|only what|less",
    never={
        COMPUTED_AGAIN: "each line is read once",
        MORE_WORKERS: "the client receives the lines, whoever reads them",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def prepare() -> None:
    place = folder("ledgers")
    rng = np.random.default_rng(17)
    for year in range(YEARS):
        goods = rng.integers(0, len(GOODS), ENTRIES)
        quays = rng.integers(1, 40, ENTRIES)
        tons = rng.integers(1, 900, ENTRIES)
        with open(place / f"{1850 + year}.txt", "w") as file:
            for number in range(ENTRIES):
                kind = GOODS[goods[number]]
                file.write(f"entry {number}; quay {quays[number]}; {kind} from overseas; {tons[number]}\n")


def tons_of(line: str) -> int:
    return int(line.rsplit(";", 1)[1])


def ledgers() -> db.Bag:
    return db.read_text(str(folder("ledgers") / "*.txt"))


def bad(client: Client) -> float:
    entries = ledgers().compute()  # <- here
    return float(sum(tons_of(entry) for entry in entries))


def good(client: Client) -> float:
    return float(ledgers().map(tons_of).sum().compute())
