"""A text file is counted in blocks of a few kilobytes.

source: dask/dask issue 1745
date:   2016-11-02
seen:   counting words in a large file of JSON lines gives no result for hours; read_text has blocksize=1000, and the
        maintainer's answer has 10 MB, which takes seconds.
cause:  each block is a task, and parsing a few kilobytes takes less than Dask needs to run a task.
cure:   blocks of megabytes.
"""

from __future__ import annotations

import json
from pathlib import Path

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
LINES = scaled(60_000)
TINY, AMPLE = 4_000, 1_000_000
WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel")

EXPECTED = Expected(
    cause="many small tasks: thousands, of a millisecond each",
    place="the read_text(), or the compute()",
    cure="larger blocks",
    says=r"\b(small|short|tiny|many)\b.{0,30}\b(tasks?|partitions|blocks|chunks)|tasks?\b.{0,40}\b(small|short|tiny)"
    r"|overhead|scheduler.{0,40}\b(busy|bound|limit|bottleneck|cannot keep up)",
    places=marked(__file__),
    cures=r"longer tasks|(larger|bigger|fewer) (\w+ )?(blocks?|partitions?|chunks?|tasks?)|more work (in|per)|batch"
    r"|(blocks?|partitions?|chunks?|tasks?) (larger|bigger|longer)|blocksize",
    never={
        PROCESSES: "the tasks are too short for anything else to matter",
        MORE_WORKERS: "more workers have more overhead",
        LOCK: "there is no lock",
    },
)


def path() -> Path:
    return folder("comments") / "comments.json"


def prepare() -> None:
    with path().open("w") as file:
        for i in range(LINES):
            body = " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(8))
            file.write(json.dumps({"id": i, "author": f"user-{i % 1013}", "body": body}) + "\n")


def most_frequent(blocksize: int) -> int:
    comments = db.read_text(str(path()), blocksize=blocksize).map(json.loads)  # <- here
    words = comments.pluck("body").str.split().flatten()
    counts = words.frequencies().compute()  # <- here
    return sum((WORDS.index(word) + 1) * count for word, count in counts)


def bad(client: Client) -> float:
    return float(most_frequent(TINY))  # <- here


def good(client: Client) -> float:
    return float(most_frequent(AMPLE))
