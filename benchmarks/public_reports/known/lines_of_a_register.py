"""Lines of a register of ships are read, and each line is a task of client.map.

source: dask/distributed issue 2181
date:   2018-08-14 (its comments)
seen:   millions of short commands, each a task: minutes until the first of them starts, and a scheduler that is busy.
cause:  client and scheduler spend more time on a task than the task takes.
cure:   batches: a bag with some hundred lines in each partition.
"""

from __future__ import annotations

import shlex

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
LINES = scaled(6_000)

EXPECTED = Expected(
    cause="thousands of tasks of a fraction of a millisecond: nearly all of the time is overhead for tasks",
    place="the map() of tonnage_of over all lines, or the gather() of its results",
    cure="batches of lines: a bag, or lists of lines",
    says=r"overhead|scheduler.{0,40}(busy|bottleneck|limit|keep up|cpu)|little work|microseconds"
    r"|(many|thousands of|too|very|so|tiny|small|short|brief) (\w+ ){0,2}(tasks|futures|calls)"
    r"|(tasks?|futures|calls)\b.{0,20}\b(too |very |so )?(small|short|tiny|brief|many)"
    r"|(per|for each|of each|each) (task|line|future)|(longer|larger|bigger|fewer) (and \w+ )?tasks"
    r"|tasks? (longer|larger|bigger)",
    places=(*marked(__file__), function("tonnage_of")),
    cures=r"batch|\bbag\b|group|combine|merge|chunk|together|several|more work"
    r"|(fewer|larger|longer|bigger)\b.{0,40}\btasks?|tasks? (longer|larger|bigger)"
    r"|(many|more) .{0,40}(in|per|to|for) (a|each|one|every) (task|call)",
    never={
        MORE_WORKERS: "the workers wait for tasks",
        HOLDS_GIL: "the work of a task is nothing",
        PROCESSES: "there are processes already, and they wait for tasks",
        MORE_MEMORY: "memory is ample",
    },
)


def register() -> list[str]:
    return [f"ship --name 'Vessel No. {n}' --port {n % 61} --tons {n * 7 % 4_001}" for n in range(LINES)]


def tonnage_of(line: str) -> int:
    words = shlex.split(line)
    return int(words[words.index("--tons") + 1])


def bad(client: Client) -> float:
    futures = client.map(tonnage_of, register())  # <- here
    return float(sum(client.gather(futures)))  # <- here


def good(client: Client) -> float:
    lines = db.from_sequence(register(), npartitions=8)
    return float(lines.map(tonnage_of).sum().compute())
