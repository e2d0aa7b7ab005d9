"""Words on the postcards of soldiers, each in a file of its own.

source: dask/dask issue 4012
date:   2018-09-25
seen:   a bag of more than a thousand small text files had a massive graph, which took up to most of a minute to be
        serialised, before little work was done.
cause:  a partition and tasks for each small file: graph and scheduling take much longer than reading.
cure:   many files in a partition (files_per_partition).
"""

from __future__ import annotations

import random

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
POSTCARDS = scaled(3000)

EXPECTED = Expected(
    cause="a partition for each small file: the graph and the overhead of thousands of short tasks",
    place="the line of read_text, or that of compute",
    cure="files_per_partition, or files joined beforehand",
    says=r"(many|small|short|tiny|little).{0,30}(tasks?|partitions?|files?)"
    r"|tasks? (are|is|were) (too )?(short|small|tiny)|overhead|\bgraphs?\b|scheduler.{0,40}busy",
    places=(*marked(__file__),),
    cures=r"files_per_partition|many .{0,30}(in one|per|each|at once)|batch"
    r"|(larger|bigger|longer|fewer|more work).{0,30}(partitions?|tasks?|files?|blocks?|each|per)"
    r"|(join|merge|combin|group)\w* .{0,30}(files?|tasks?|partitions?)",
    never={
        COMPUTED_AGAIN: "each file is read once",
        LOCK: "no lock is used",
        MORE_MEMORY: "memory is not short",
        MORE_WORKERS: "the scheduler and the client are the ones that are busy",
    },
)

LETTER = "dear mother the weather is good we march again tomorrow send socks and tobacco i am well kiss the children"


def prepare() -> None:
    place = folder("postcards")
    for number in range(POSTCARDS):
        dice = random.Random(number)
        words = LETTER.split()
        lines = [" ".join(dice.choices(words, k=9)) for _ in range(12)]
        (place / f"card-{number:05}.txt").write_text("\n".join(lines) + "\n")


def is_of_home(word: str) -> bool:
    return word in {"mother", "children", "kiss", "dear"}


def share_of_home(cards: db.Bag) -> float:
    words = cards.map(str.split).flatten()
    return float(words.filter(is_of_home).count().compute())  # <- here


def bad(client: Client) -> float:
    return share_of_home(db.read_text(str(folder("postcards") / "*.txt")))  # <- here


def good(client: Client) -> float:
    return share_of_home(db.read_text(str(folder("postcards") / "*.txt"), files_per_partition=200))
