"""Patterns for looms are rendered, and the script sends another when it sees, now and then, that a place is free.

source: dask/distributed issue 1868
date:   2018-03-28
seen:   a program that should not flood the cluster asks how many of its tasks are under way, and submits more only
        when there are free workers. What it asks lags behind, and workers are without work meanwhile.
cause:  the client holds tasks back until it finds a place free, and looks only so often: whenever a worker is ready it
        waits for the next look.
cure:   submit all, the scheduler has queues; or let as_completed tell when one is done.
"""

from __future__ import annotations

import time
from typing import Any

from distributed import Client, Future

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
PATTERNS = scaled(44)
PLACES = 2
#: Seconds between two looks at how many tasks are under way.
PAUSE = 0.6

EXPECTED = Expected(
    cause="the script submits only so many tasks as there are workers, and looks only every now and then whether one is"
    " done",
    place="the loop in which the script sleeps and submits",
    cure="submit all at once, or as_completed",
    says=r"sleep|poll|paus|throttl|held back|holds? (them |tasks )?back|in flight|at a time|between (the )?submi"
    r"|(client|script|program)\b.{0,60}\b(submi|send|sent|wait|busy|idle|slow|late)"
    r"|wait\w* for (the client|the script|the program|tasks|work)|starv"
    r"|(no|few|nothing|not enough|without) (\w+ ){0,2}(tasks?|work)\b|submit\w* (late|slow|too|only|one|few)",
    places=(*marked(__file__), function("bad"), function("under_way")),
    cures=r"submit|\bmap\b|as_completed|wait\(|gather|at once|together|ahead|queue|sleep|poll",
    never={
        LONGER_TASKS: "the tasks are long enough",
        MORE_WORKERS: "those there are have nothing to do most of the time",
        MORE_MEMORY: "the memory suffices",
        HOLDS_GIL: "the tasks do not hold it, and one runs per process",
    },
)


def render(pattern: int) -> int:
    compute_for(0.12)
    return pattern * pattern % 101


def under_way(futures: list[Future[Any]]) -> int:
    return sum(future.status == "pending" for future in futures)


def bad(client: Client) -> float:
    futures: list[Future[Any]] = []
    for pattern in range(PATTERNS):
        while under_way(futures) >= PLACES:
            time.sleep(PAUSE)  # <- here
        futures.append(client.submit(render, pattern))  # <- here
    return float(sum(client.gather(futures)))


def good(client: Client) -> float:
    futures = client.map(render, range(PATTERNS))
    return float(sum(client.gather(futures)))
