"""Batches of streams are sent to the worker to which their stream belongs.

source: dask/dask issue 6095
date:   2020-04-14
seen:   batches of a stream move between workers, so each stream shall have a worker of its own; the answer is to trust
        the scheduler, and to find out why, if it chooses badly.
cause:  where each task has to run on a given worker, work cannot go where there is time for it: streams differ much,
        and the worker of the busy ones is the last to finish, long after the others.
cure:   no restriction to workers, or one that allows others.
"""

from __future__ import annotations

import zlib

import numpy as np
from distributed import Client

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
#: Batches of each stream.
STREAMS = {"harbour": 30, "bridge": 6, "airport": 24, "park": 4, "stadium": 4}

EXPECTED = Expected(
    cause="tasks may only run on one worker each, and most of them belong to the same one: the other is idle",
    place="send, where it submits to a worker, or bad",
    cure="leave out workers=, or allow other workers",
    says=r"\bworkers=|restrict|\bpinn?(ed|s)?\b|bound\b|\btied\b|(one|same|single|only) worker|uneven"
    r"|unbalanced|imbalance"
    r"|skew|\bidle\b|nothing to do|unequal|(other|others) (wait|ha[sd])|while .{0,40}(free|wait)|may only run|allowed",
    places=(*marked(__file__), function("send"), function("denoised"), function("home_of")),
    cures=r"workers=|restrict|\bpin|allow_other_workers|(any|all|other|both|every|free) workers?|let .{0,20}scheduler"
    r"|without .{0,20}worker|spread|even(ly)?\b|balanc|steal",
    never={
        MORE_WORKERS: "one of two has nothing to do already",
        LONGER_TASKS: "a task takes a third of a second",
        MORE_MEMORY: "all of it is small",
        HOLDS_GIL: "a worker has one thread",
    },
)


def batches() -> list[tuple[str, int]]:
    """Batches of all streams, in the order in which they come in."""
    every = [(name, number) for name, amount in STREAMS.items() for number in range(scaled(amount))]
    order = np.random.default_rng(3).permutation(len(every))
    return [every[position] for position in order]


def denoised(stream: str, number: int) -> float:
    """Loudness of a batch."""
    values = np.random.default_rng([zlib.crc32(stream.encode()), number]).normal(size=5000)
    compute_for(0.3)
    return float(np.abs(values).sum())


def home_of(stream: str, workers: list[str]) -> str:
    """Worker of a stream, the same at all times."""
    return workers[zlib.crc32(stream.encode()) % len(workers)]


def send(client: Client, stream: str, number: int, workers: list[str]) -> object:
    return client.submit(denoised, stream, number, workers=[home_of(stream, workers)])  # <- here


def bad(client: Client) -> float:
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    futures = [send(client, stream, number, workers) for stream, number in batches()]  # <- here
    return float(sum(client.gather(futures)))  # <- here


def good(client: Client) -> float:
    futures = [client.submit(denoised, stream, number) for stream, number in batches()]
    return float(sum(client.gather(futures)))
