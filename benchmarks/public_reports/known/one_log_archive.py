"""The lines of one compressed log are read into a bag and analysed.

source: dask/dask issue 7758
date:   2021-06-03
seen:   one gzip file of text, read with dask.bag; a block size is refused for compressed files, and without one the bag
        has one partition, so one worker does everything, however many there are; repartitioning afterwards did not
        help.
cause:  a gzip stream cannot be entered in the middle, so the file is one partition, hence one task.
cure:   gzip is not made for parallel reading: unpack the file before, or store the data as several compressed files,
        one partition each (which the person then did).

The analysis is plain Python of some 0.1 ms a line; the other worker has nothing to do.
"""

from __future__ import annotations

import gzip
import json
import random
from itertools import pairwise

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
LINES, PARTS = scaled(130_000), 12

EXPECTED = Expected(
    cause="no parallelism: the whole input is one partition (one gzip file cannot be split), so one task on one worker"
    " does all the work and the other worker idles",
    place="db.read_text of one .gz file with blocksize=None in bad(); as object: the bag with npartitions == 1",
    cure="store the log as several gzip files (one partition each), or uncompressed (or in a format that can be split)"
    " and read it with a block size; more partitions at the source",
    says=r"(one|single|1|few|fewer|longest|long|large|big|too large) (\w+ )?(partitions?|tasks?|workers?|files?|cores?"
    r"|threads?)"
    r"|parallel|\bidl(e|es|ed|ing)\b|critical path|not (be )?split|gzip|nothing (else )?to (do|run)|balanc|uneven"
    r"|serial"
    r"|sequential",
    places=(*marked(__file__), r"read_text|log\.jsonl\.gz|\bbag\b"),
    cures=r"split|(?<!re)partition|files\b|uncompress|decompress|unpack|parquet|format|block ?size|smaller|more tasks"
    r"|pieces|chunks|several|divide",
    never={
        r"(?i)\brepartition(\(\)| the| it| them| after| your)|\.repartition": "reading stays one task",
        r"(?i)decompress\w* is (the|slow)": "it is a few per cent",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "there are two processes with one thread each",
        MORE_WORKERS: "the other worker has nothing to do",
        r"(?i)slow (worker|machine|node)\b|(worker|machine|node) is slow|hardware": "the workers are equal",
    },
)


def prepare() -> None:
    """Write the same lines as one compressed file and as a dozen."""
    place, dice = folder("log"), random.Random(2)
    words = [f"{a}{b}" for a in ("disk", "net", "user", "job", "cache", "lock") for b in ("", "-open", "-lost", "-ok")]
    lines = [
        json.dumps(
            {
                "host": f"node{dice.randrange(40):02d}",
                "code": dice.randrange(600),
                "text": " ".join(dice.choices(words, k=25)),
            }
        )
        for _ in range(LINES)
    ]
    with gzip.open(place / "log.jsonl.gz", "wt", compresslevel=4) as whole:
        whole.writelines(line + "\n" for line in lines)
    for number in range(PARTS):
        with gzip.open(place / f"part-{number:02d}.jsonl.gz", "wt", compresslevel=4) as part:
            part.writelines(line + "\n" for line in lines[LINES * number // PARTS : LINES * (number + 1) // PARTS])


def kind(line: str) -> str:
    """What a line is about: the most telling pair of neighbouring words."""
    event = json.loads(line)
    words = event["text"].split()
    best, best_weight = "", -1
    for left, right in pairwise(words):
        weight = sum(ord(letter) * (place + 1) for place, letter in enumerate(left + right)) % 1009
        if weight > best_weight:
            best, best_weight = f"{left}/{right}", weight
    return best if event["code"] >= 100 else "quiet"


def counted(lines: db.Bag) -> float:
    counts = dict(lines.map(kind).frequencies().compute())
    return sum(len(name) * count for name, count in counts.items())


def bad(client: Client) -> float:
    lines = db.read_text(str(folder("log") / "log.jsonl.gz"), blocksize=None)  # <- here
    return counted(lines)


def good(client: Client) -> float:
    lines = db.read_text(str(folder("log") / "part-*.jsonl.gz"), blocksize=None)
    return counted(lines)
