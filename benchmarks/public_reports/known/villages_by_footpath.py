"""How many villages can be reached on foot within some paths, from each of some villages.

source: networkx/networkx issue 5922
date:   2022-08-01
seen:   analysing many nodes of a large graph in parallel has long pauses between bursts of work; the function that is
        mapped refers to the graph.
cause:  the graph of villages is part of the function that each task carries; it is pickled and unpickled for each task.
cure:   pass the network as data that is known to Dask: scattered once, as an argument of the function.
"""

from __future__ import annotations

import random
from functools import partial

from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
VILLAGES = 20_000
STARTS = scaled(50)
PATHS = 9

EXPECTED = Expected(
    cause="every task's function carries the whole network, which is pickled for each task",
    place="the partial function with the network, or the submit() of it",
    cure="scatter the network once, and pass it as an argument",
    says=r"pickl|serializ|\bcarr(y|ies|ied)\b|embed|in (the|its) graph|large graph"
    r"|\b(large|big|heavy|\d+ [kMG]i?B)\b.{0,50}\b(tasks?|functions?|objects?|graph|arguments?)\b"
    r"|sen[dt]s?\b.{0,30}(each|every|again)",
    places=(*marked(__file__), function("reached"), function("from_each")),
    cures=r"scatter|as an argument|as data|once (to|on|for|per) (each|every|all)|send .{0,30}once|delayed"
    r"|load .{0,40}(task|worker)",
    never={
        LONGER_TASKS: "what takes the time is the network that each brings along",
        COMPUTED_AGAIN: "nothing is computed twice",
        MORE_MEMORY: "there is enough",
    },
)


def footpaths() -> dict[str, list[str]]:
    """Neighbours of each village: those beside it, and one far away."""
    choice = random.Random(4)
    names = [f"village-{number:05d}" for number in range(VILLAGES)]
    return {
        name: [names[number - 1], names[(number + 1) % VILLAGES], names[choice.randrange(VILLAGES)]]
        for number, name in enumerate(names)
    }


def reached(network: dict[str, list[str]], start: str) -> int:
    """Number of villages that are at most some paths away."""
    known, edge = {start}, [start]
    for _ in range(PATHS):
        edge = [there for here in edge for there in network[here] if there not in known]
        known.update(edge)
    return len(known)


def starts() -> list[str]:
    return [f"village-{number:05d}" for number in range(0, VILLAGES, VILLAGES // STARTS)][:STARTS]


def from_each(client: Client, count) -> float:
    return float(sum(client.gather([client.submit(count, start) for start in starts()])))  # <- here


def bad(client: Client) -> float:
    network = footpaths()
    return from_each(client, partial(reached, network))  # <- here


def good(client: Client) -> float:
    [network] = client.scatter([footpaths()], broadcast=True)
    return float(sum(client.gather([client.submit(reached, network, start) for start in starts()])))
