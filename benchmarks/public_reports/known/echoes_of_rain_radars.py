"""Scans of rain radars that are worked up on the cluster, while a callback logs how strong the echo of each was.

source: proxystore/taps issue 108
date:   2024-07-31
seen:   a run moves far more data than its tasks need to.
cause:  a callback of each task's future asks for its result, to write a line of a log. That brings the whole result to
        the client, one after the other, though only other tasks on the cluster need it.
cure:   have what is to be logged computed in a task, and bring only that; or do not ask for the result.
"""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import numpy as np
from distributed import Client, Future

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SCANS, SIDE = scaled(120), 2_200

EXPECTED = Expected(
    cause="whole scans are brought to the client, in a callback that asks for their result",
    place="result() in the callback note_echo, or its registration with add_done_callback; or the scans",
    cure="compute what is logged in a task, so that only a number is brought to the client",
    says=r"callback|\bresult\(\)|\.result\b|(gather|collect|fetch|transfer|sent|send|sends|sending|bring|brought|download"
    r"|receiv|pull|mov|copi|wait)\w*\b.{0,80}\b(clients?|scripts?|main|user|scans?|results?)|(client|script|main)\b.{0,80}"
    r"\b(gather|collect|fetch|transfer|sent|bring|brought|download|receiv|pull|took|takes|got|gets|wait)",
    places=(*marked(__file__), function("note_echo"), function("scan"), function("bad"), r"\bresult\b", r"add_done"),
    cures=r"in (a|the|another|its own) task|on the (cluster|workers?)|where (it|they|the data) (is|are|lies?)|small"
    r"|summar|reduc|only (what|the|that|a)|fewer bytes|less|(do not|don't|avoid|without|instead of|rather than|not)\b"
    r".{0,60}\b(result|gather|fetch|bring|collect|ask|callback)|submit|\bmax\b|keep\b.{0,60}\b(workers?|cluster)",
    never={
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        LONGER_TASKS: "tasks are not what takes time",
        MORE_MEMORY: "there is enough",
        SLEEP: "nothing sleeps",
    },
)


def scan(number: int) -> np.ndarray:
    echo = np.full((SIDE, SIDE), 5.0)
    echo[number * 7 :: 16] += np.random.default_rng(number).exponential(9.0, SIDE)
    return echo


def rain(echo: np.ndarray) -> float:
    return float(np.sqrt(echo[::16]).mean())


def strength(echo: np.ndarray) -> float:
    return float(echo.max())


def bad(client: Client) -> float:
    log: SimpleQueue[float] = SimpleQueue()

    def note_echo(future: Future[Any]) -> None:
        log.put(float(future.result().max()))  # <- here

    scans = client.map(scan, range(SCANS))  # <- here
    for future in scans:
        future.add_done_callback(note_echo)  # <- here
    fallen = client.map(rain, scans)
    del scans, future
    return float(sum(client.gather(fallen)) + sum(log.get() for _ in range(SCANS)))


def good(client: Client) -> float:
    scans = client.map(scan, range(SCANS))
    strengths = client.map(strength, scans)
    fallen = client.map(rain, scans)
    del scans
    return float(sum(client.gather(fallen)) + sum(client.gather(strengths)))
