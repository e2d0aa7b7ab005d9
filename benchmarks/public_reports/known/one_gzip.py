"""A large gzip file becomes a bag of a single partition, so that one worker does everything.

source: dask/dask issue 7758; also dask/dask issues 901 and 2449
date:   2021-06-03 (the others 2016-01-04 and 2017-06-09)
seen:   a bag of lines from one .gz file had one partition and went to one worker, however many there were; a block size
        is refused for such a file, and repartitioning afterwards did not bring the other workers to work.
cause:  a gzip file cannot be entered in the middle: one file is one partition, and all that follows is one task.
cure:   the thread: store the data in many compressed files (a file is a partition), uncompressed, or in another format.

The files have the same lines in both forms.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    compute_for,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
LINES, PARTS = scaled(40_000), 8
WORDS = ("tree", "house", "river", "stone", "cloud", "grass", "bird", "fish", "road", "bridge", "light", "rain")

EXPECTED = Expected(
    cause="there is no parallelism: the input is one gzip file, hence one partition and one long task; the second"
    " worker"
    " idles for the whole run",
    place="count(): db.read_text of all.gz (one partition)",
    cure="split the input into several files (or store it uncompressed / in a format that can be split), so that there"
    " are at least as many partitions as cores",
    says=r"(one|single|1|few|fewer|longest|long|large|big|too large) (\w+ )?(partitions?|tasks?|workers?|files?|cores?"
    r"|threads?)"
    r"|parallel|\bidl(e|es|ed|ing)\b|critical path|not (be )?split|gzip|nothing (else )?to (do|run)|balanc|uneven"
    r"|serial"
    r"|sequential",
    places=(*marked(__file__), function("count"), r"read_text|all\.gz"),
    cures=r"split|(?<!re)partition|files\b|uncompress|decompress|unpack|parquet|format|block ?size|smaller|more tasks"
    r"|pieces|chunks|several|divide",
    never={
        r"(?i)\brepartition(\(\)| the| it| them| after| your)|\.repartition": "reading and parsing stay in one task",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they are processes with one thread",
        MORE_WORKERS: "the other worker has nothing to do",
        LONGER_TASKS: "there is one long task",
        r"(?i)disk is slow|slow disk|faster disk": "it is hardly used",
    },
)


def prepare() -> None:
    place, chance = folder("lines"), random.Random(8)
    lines = [
        json.dumps(
            {"user": chance.randrange(5_000), "words": [chance.choice(WORDS) for _ in range(12)], "number": number}
        )
        + "\n"
        for number in range(LINES)
    ]
    with gzip.open(place / "all.gz", "wt", compresslevel=4) as file:
        file.writelines(lines)
    for part in range(PARTS):
        with gzip.open(place / f"part-{part}.gz", "wt", compresslevel=4) as file:
            file.writelines(lines[LINES * part // PARTS : LINES * (part + 1) // PARTS])


def topics(records: Iterable[dict]) -> list[str]:
    """Ask a model for a whole partition at once; it takes 0.2 ms for a record."""
    records = list(records)
    compute_for(2e-4 * len(records))
    return [max(record["words"]) for record in records]


def count(client: Client, pattern: str) -> float:
    lines = db.read_text(str(folder("lines") / pattern))  # <- here
    found = lines.map(json.loads).map_partitions(topics)
    return max(number for topic, number in found.frequencies().compute())


def bad(client: Client) -> float:
    return count(client, "all.gz")


def good(client: Client) -> float:
    return count(client, "part-*.gz")
