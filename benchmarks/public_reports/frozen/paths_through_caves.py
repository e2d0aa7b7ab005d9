"""The reach of a walker from each mouth of a system of caves.

source: networkx/networkx issue 5922
date:   2022-08-09
seen:   a measure of each node of a large network, one task each, did not get anywhere: long pauses between actions, and
        memory that grew.
cause:  the network travels, pickled, with each task.
cure:   hand it over once (as a delayed value, or scattered), and pass that.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
CHAMBERS = 30_000
MOUTHS = scaled(70)
STEPS = 6

EXPECTED = Expected(
    cause="each task carries the whole network, pickled: megabytes each",
    place="the line of submit",
    cure="scatter the network once, and pass the future",
    says=r"pickl|serializ|\bcarr(y|ies)\b"
    r"|\b(large|big|heavy|\d+(\.\d+)? [kMG]i?B)\b.{0,60}\b(tasks?|functions?|objects?|graph|arguments?)\b",
    places=(*marked(__file__), function("reach")),
    cures=r"scatter|delayed|\bonce\b|as data|once (to|on|for) (each|every|all)"
    r"|(load|make|build|read)\w* .{0,30}workers?",
    never={
        COMPUTED_AGAIN: "each mouth is another task",
        LONGER_TASKS: "what takes time is the network's way",
        MORE_WORKERS: "the client and the scheduler have the work",
    },
)


def caves() -> dict[str, list[str]]:
    """Neighbours of each chamber."""
    ends = np.random.default_rng(2).integers(0, CHAMBERS, (CHAMBERS, 4))
    return {f"chamber-{i}": [f"chamber-{end}" for end in row] for i, row in enumerate(ends.tolist())}


def reach(passages: dict[str, list[str]], mouth: str) -> int:
    """Number of chambers within some steps."""
    seen = {mouth: 0}
    ahead = deque([mouth])
    while ahead:
        here = ahead.popleft()
        if seen[here] < STEPS:
            for there in passages[here]:
                if there not in seen:
                    seen[there] = seen[here] + 1
                    ahead.append(there)
    return len(seen)


def bad(client: Client) -> float:
    passages = caves()
    futures = [client.submit(reach, passages, f"chamber-{mouth}") for mouth in range(MOUTHS)]  # <- here
    return float(sum(client.gather(futures)))


def good(client: Client) -> float:
    passages = client.scatter(caves(), broadcast=True)
    futures = [client.submit(reach, passages, f"chamber-{mouth}") for mouth in range(MOUTHS)]
    return float(sum(client.gather(futures)))
