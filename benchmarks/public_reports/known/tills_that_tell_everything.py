"""Queues at the tills of supermarkets are simulated; what happens is logged, and the script wants to see it.

source: dask/distributed pull request 7276; of the same kind: dask/distributed pull request 5217 (its comment of
        2022-10-18), dask/distributed issue 4978
date:   2022-11-09 (issue 4978: 2021-06-25)
seen:   logs of tasks can be sent to the client; with a logger that says much, the many messages weigh on the scheduler,
        and computations get slow.
cause:  each record of the logger goes from the worker to the scheduler and from there to the client.
cure:   forward only what is rare (warnings), or log less, or write logs to files where the tasks are.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SHOPS, CUSTOMERS, TILLS = scaled(48), 6_600, 6
NAME = "supermarket.tills"
LOG = logging.getLogger(NAME)
LOG.setLevel(logging.INFO)
LOG.propagate = False

EXPECTED = Expected(
    cause="each of many thousand log records is sent to the scheduler and from there to the client",
    place="forward_logging in served, and LOG.info in simulated",
    cure="forward warnings only, or log less, or into files on the workers",
    says=r"\blog(s|ged|ging|gers?)?\b|log (records?|messages?|lines?|events?)|forward|record\w* (sent|go)|messages?\b"
    r"|events?"
    r" (sent|to the)|\bemit\b|log_event",
    places=(
        *marked(__file__),
        function("simulated"),
        function("served"),
        r"\bforward_logging\b|\bemit\b|\blog_event\b|\blogging\b",
    ),
    cures=r"(log|forward|send|emit|write|print)\w*\W+(\w+\W+){0,5}(less|fewer|only|seldom|rarely|once|warnings?"
    r"|summar\w+"
    r"|files?|locally|every|less often)|(fewer|less|no|without|drop|remove|avoid)\W+(\w+\W+){0,4}(log|messages?"
    r"|records?"
    r"|events?|forward)|(raise|higher|lower|set)\W+(\w+\W+){0,4}level|level ?=|setlevel|warning|unforward|handler|batch"
    r"|summar|to (a )?files?",
    never={
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none that is held for long",
        SLEEP: "nobody sleeps",
        PROCESSES: "they have one thread each",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "there is enough",
    },
)


@contextmanager
def forwarded(client: Client, level: int) -> Iterator[None]:
    """What tasks log from this level on is written to a file here."""
    handler = logging.FileHandler(folder("tills") / f"{logging.getLevelName(level)}.log")
    LOG.addHandler(handler)
    client.forward_logging(NAME, level=level)  # <- here
    try:
        yield
    finally:
        client.unforward_logging(NAME)
        LOG.removeHandler(handler)
        handler.close()


def simulated(shop: int) -> float:
    """Mean time at the tills of a shop."""
    chance = Random(shop)
    free = [0.0] * TILLS
    now, total = 0.0, 0.0
    for customer in range(CUSTOMERS):
        now += chance.expovariate(TILLS / 1.05)
        start = max(now, heapq.heappop(free))
        done = start + chance.expovariate(1.0)
        heapq.heappush(free, done)
        total += done - now
        LOG.info(
            "shop %d: customer %d came at %.1f, waited %.1f and left at %.1f", shop, customer, now, start - now, done
        )  # <- here
        if start - now > 600.0:
            LOG.warning("shop %d: customer %d waits for very long", shop, customer)
    return total / CUSTOMERS


def served(client: Client, level: int) -> float:
    with forwarded(client, level):
        return float(sum(client.gather(client.map(simulated, range(SHOPS)))))


def bad(client: Client) -> float:
    return served(client, logging.INFO)


def good(client: Client) -> float:
    return served(client, logging.WARNING)
