"""Photographs of mosses are looked up in a herbarium: each of them is compared with all its sheets.

source: asapdiscovery/asapdiscovery issue 364
date:   2023-07-10
seen:   a warning of a large graph of gigabytes. Tasks were submitted with the big data as an argument.
cause:  submit(function, big_data) sends the data to the scheduler with every task, and from there to a worker.
cure:   scatter the data first, and submit the future of it.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PHOTOGRAPHS = scaled(110)
SHEETS = 60_000
FEATURES = 48

EXPECTED = Expected(
    cause="every task carries the whole herbarium, 23 MB, which is serialized and sent with each of them",
    place="the submit() with the herbarium as an argument",
    cure="scatter the herbarium once, and submit its future",
    says=r"pickl|serializ|\bcarr(y|ies|ied)\b|embed|hash(es|ed|ing)|in (the|its) graph|large graph|graph of \d"
    r"|\b(large|big|heavy|\d+ [kMG]i?B)\b.{0,50}\b(tasks?|functions?|objects?|graph|arguments?)\b"
    r"|sen[dt]s?\b.{0,30}(each|every|again)",
    places=(*marked(__file__), function("look_up"), function("nearest")),
    cures=r"scatter|once (to|on|for|per) (each|every|all)|send .{0,30}once|as a future|load .{0,40}(task|worker)"
    r"|delayed",
    never={
        LONGER_TASKS: "the tasks are long enough; what takes the time is the data that each brings along",
        COMPUTED_AGAIN: "nothing is computed twice",
        MORE_WORKERS: "the client sends all data, however many workers there are",
        MORE_MEMORY: "the data are small beside the memory",
    },
)


def herbarium() -> np.ndarray:
    return np.random.default_rng(11).normal(size=(SHEETS, FEATURES))


def photograph(number: int) -> np.ndarray:
    return np.random.default_rng(1000 + number).normal(size=FEATURES)


def nearest(picture: np.ndarray, sheets: np.ndarray) -> float:
    """Distance to the sheet that is most alike."""
    return float(np.sqrt(((sheets - picture) ** 2).sum(axis=1).min()))


def look_up(client: Client, sheets) -> float:
    futures = [client.submit(nearest, photograph(number), sheets) for number in range(PHOTOGRAPHS)]  # <- here
    return sum(client.gather(futures))


def bad(client: Client) -> float:
    return look_up(client, herbarium())  # <- here


def good(client: Client) -> float:
    return look_up(client, client.scatter(herbarium(), broadcast=True))
