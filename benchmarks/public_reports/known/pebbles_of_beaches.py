"""The squares of the diameters of pebbles are added up.

source: dask/distributed issue 2316
date:   2018-10-22
seen:   a million numbers are scattered, squared by ``map`` and added by a last task. Nearly all goes on at one machine,
        workers have next to nothing to do, and the scheduler's event loop does not respond.
cause:  each number is a piece of data and a task of its own: all the time is that of the client and the scheduler.
cure:   scatter, or pass, lists of many numbers, and let a task work on a list.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LOCK, MORE_WORKERS, PROCESSES, TWO_BY_TWO, Expected, marked, scaled

CLUSTER = TWO_BY_TWO
PEBBLES = scaled(8_000)
HANDFUL = 500

EXPECTED = Expected(
    cause="thousands of tasks that are too short: one for each number",
    place="the map() over the numbers, the scatter() of them, or the function square",
    cure="larger tasks: a list of numbers in each",
    says=r"tasks?[^.]{0,40}(too )?(small|short|tiny)|(small|short|tiny)[^.]{0,20}tasks?|too many tasks|overhead"
    r"|[\d,]+ (tasks|keys|numbers|futures)|scheduler[^.]{0,40}busy",
    places=(*marked(__file__), r"\bsquare\b", r"\bscatter\b"),
    cures=r"(longer|larger|bigger|fewer)[^.]{0,30}(tasks?|pieces)|batch|lists?\b|chunks?|partition|group"
    r"|several|more work|batch_size",
    never={
        MORE_WORKERS: "workers are idle",
        PROCESSES: "the threads are idle",
        LOCK: "nobody waits for a lock of the program",
    },
)


def diameters() -> list[float]:
    return np.random.default_rng(17).gamma(4, 1.5, PEBBLES).tolist()


def square(diameter: float) -> float:
    return diameter * diameter


def squares(diameters: list[float]) -> float:
    return sum(diameter * diameter for diameter in diameters)


def bad(client: Client) -> float:
    pebbles = client.scatter(diameters())  # <- here
    areas = client.map(square, pebbles, pure=False)  # <- here
    return client.submit(sum, areas).result()  # <- here


def good(client: Client) -> float:
    pebbles = diameters()
    handfuls = [pebbles[first : first + HANDFUL] for first in range(0, PEBBLES, HANDFUL)]
    return client.submit(sum, client.map(squares, handfuls, pure=False)).result()
