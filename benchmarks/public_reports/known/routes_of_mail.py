"""Routes of mail vans are compared with a table of distances.

source: asapdiscovery/asapdiscovery issue 364
date:   2023-07-10
seen:   a function was submitted with a big object for each item of work; the graph became 3.2 GiB, Dask warned of it,
        and keys could not be gathered.
cause:  the big object is an argument of each task by value, so it is hashed, pickled and sent for each of them.
cure:   scatter it once, and submit with the future.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

CLUSTER = TWO_BY_TWO
VANS = scaled(380)
PLACES = 800

EXPECTED = Expected(
    cause="every submit() carries the table of distances, which is pickled and sent for each task",
    place="submit() in the loop over the vans",
    cure="scatter the table once and pass the future",
    says=r"pickl|seriali[sz]|\bcarr(y|ies)\b|embed|by value|hash|token"
    r"|\b(large|big|heavy|\d+(\.\d+)? [kMG]i?B)\b.{0,50}\b(tasks?|functions?|objects?|graph|arguments?)\b",
    places=(*marked(__file__), r"\blength_of_route\b"),
    cures=r"scatter|future|once (to|on|for) (each|every|all)|load (it )?(on|in) the worker|as data",
    never={
        LONGER_TASKS: "tasks of some 10 ms are long enough",
        MORE_WORKERS: "workers wait for the table",
    },
)


def distances() -> np.ndarray:
    spots = np.random.default_rng(1).uniform(0, 60, (2, PLACES))
    return np.hypot(*(spots[:, :, None] - spots[:, None, :]))


def length_of_route(van: int, table: np.ndarray) -> float:
    total, place, left = 0.0, van, np.ones(PLACES, dtype=bool)
    for _ in range(PLACES - 1):
        left[place] = False
        following = int(np.where(left, table[place], np.inf).argmin())
        total += table[place, following]
        place = following
    return float(total)


def bad(client: Client) -> float:
    table = distances()
    futures = [client.submit(length_of_route, van, table) for van in range(VANS)]  # <- here
    return sum(client.gather(futures))


def good(client: Client) -> float:
    table = client.scatter(distances(), broadcast=True, hash=False)
    futures = [client.submit(length_of_route, van, table) for van in range(VANS)]
    return sum(client.gather(futures))
