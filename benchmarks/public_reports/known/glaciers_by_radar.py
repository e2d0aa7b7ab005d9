"""Radar images of glaciers, smoothed, and their mean brightness.

source: dask/dask issue 5768
date:   2020-01-08
seen:   submit and gather of large two-dimensional arrays was slow; the profile of the scheduler and of the workers
        showed reading from and writing to sockets, and nothing else.
cause:  the arrays are made on the client, and travel with each task to the workers, and back as results: there is more
        to transfer than to compute.
cure:   do not send data from the client: load or make the arrays in the tasks, and return what is wanted of them.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    LONGER_TASKS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
FLIGHTS = scaled(12)
IMAGES = 4
SIDE = 2200

EXPECTED = Expected(
    cause="large arrays are sent from the client with each task, and fetched again as results",
    place="the line of client.submit, or that of gather",
    cure="make the arrays in the tasks, and return only their means",
    says=r"(client|script).{0,80}(sen[dt]|ship|transfer|upload|argument|serializ|pickl|fetch|gather)"
    r"|(argument|array|data|input|object)s?.{0,60}(sent|ship|transfer|travel|pass|serializ|pickl|in the graph"
    r"|with each task|from the client)|transfer|serializ|communicat|large (graph|argument|object|result)s?"
    r"|\bgraph\b.{0,60}(large|big|MB|MiB|GB|GiB)|results?.{0,40}(large|big|MB|MiB|GB|GiB)",
    places=(*marked(__file__), r"\bsmoothed\b"),
    cures=r"(load|read|creat|generat|mak|build)\w*.{0,60}(worker|task|function)|(in|inside|on) (the )?(tasks?|workers?)"
    r"|scatter|processes ?= ?False|\bpaths?\b|\bseeds?\b|return.{0,40}(less|small|only|sum)|reduc|smaller",
    never={
        COMPUTED_AGAIN: "each image is smoothed once",
        LONGER_TASKS: "larger tasks have more to transfer",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def image(number: int) -> np.ndarray:
    return np.random.default_rng(number).random((SIDE, SIDE))


def smoothed(echoes: np.ndarray) -> np.ndarray:
    """The image with each row averaged with the next one."""
    return (echoes + np.roll(echoes, 1, axis=0)) / 2


def brightness(number: int) -> float:
    return float(np.mean(np.sqrt(smoothed(image(number)))))


def bad(client: Client) -> float:
    total = 0.0
    for flight in range(FLIGHTS):
        images = [image(flight * IMAGES + number) for number in range(IMAGES)]
        futures = [client.submit(smoothed, echoes) for echoes in images]  # <- here
        total += sum(float(np.mean(np.sqrt(echoes))) for echoes in client.gather(futures))  # <- here
    return total


def good(client: Client) -> float:
    total = 0.0
    for flight in range(FLIGHTS):
        futures = [client.submit(brightness, flight * IMAGES + number) for number in range(IMAGES)]
        total += sum(client.gather(futures))
    return total
