"""Openings of chess, each judged by the squares that its pieces reach.

source: dask/distributed issue 2181
date:   2018-08-14
seen:   several millions of small commands by Client.map: minutes before the first one ran, much memory of the
        scheduler, and workers that waited for it.
cause:  a task for each small command: the overhead of a task, in client, scheduler and worker, is more than its work.
cure:   a bag with some hundred commands in each partition, so that a task does many of them.
"""

from __future__ import annotations

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
OPENINGS = scaled(8_000)
MOVES = 12
BATCH = 250

EXPECTED = Expected(
    cause="a task for each opening, whose overhead is more than its work",
    place="the line of client.map",
    cure="many openings in each task, as in a bag with large partitions",
    says=r"(many|small|short|tiny|brief).{0,30}tasks?|tasks?.{0,40}(small|short|tiny|many|brief)|overhead"
    r"|scheduler.{0,40}(busy|time|load)|per task",
    places=(*marked(__file__), r"\bjudge\b"),
    cures=r"batch|fewer|longer|larger|bigger|group|chunk|partition|combine|several|\bbag\b|many .{0,30}task",
    never={
        COMPUTED_AGAIN: "each opening is judged once",
        MORE_WORKERS: "the scheduler and the client are the limit",
        MORE_MEMORY: "memory is no limit",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def judge(opening: int) -> float:
    """Sum of squares that a knight reaches on its way, move by move."""
    row, column = opening % 8, opening // 8 % 8
    state = opening * 2_654_435_761 % 2**32
    reached = 0
    for _ in range(MOVES):
        state = (state * 1_103_515_245 + 12_345) % 2**31
        step = ((1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2))[state % 8]
        row, column = (row + step[0]) % 8, (column + step[1]) % 8
        reached += sum(0 <= row + down < 8 and 0 <= column + right < 8 for down in (-2, 2) for right in (-1, 1))
    return reached / MOVES


def bad(client: Client) -> float:
    futures = client.map(judge, range(OPENINGS))  # <- here
    return float(sum(client.gather(futures)))  # <- here


def good(client: Client) -> float:
    openings = db.from_sequence(range(OPENINGS), partition_size=BATCH)
    return float(sum(openings.map(judge).compute()))
