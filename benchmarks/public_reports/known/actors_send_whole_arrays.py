"""Actors return whole arrays to the client in each iteration.

source: ratt-ru/pfb-imaging issue 113
date:   2024-08-11
seen:   each band of an image has an actor. Making an array takes an actor a moment, and most of an iteration's time is
        between that and the array's arrival at the program that drives them.
cause:  arrays of many megabytes are serialized, pass through the scheduler to the client, and are reduced there.
cure:   let the actor keep its array, and return what the iteration needs: a mean over the basis, a hundredth of it.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LOCK, LONGER_TASKS, MORE_WORKERS, TWO_BY_ONE, Expected, marked, scaled

CLUSTER = TWO_BY_ONE
ITERATIONS = scaled(14)
BASES, PIXELS = 100, 280
BANDS = 2

EXPECTED = Expected(
    cause="large results of actors are sent to the client, iteration by iteration",
    place="the result() of the actors' calls, or their method",
    cure="reduce on the actor, and send the small result",
    says=r"\b(transfer|send|sent|sends|moved?|moving|fetch|gather|network|bytes sent|communicat|returns?|serializ)\w*\b"
    r"|(large|big) (results?|arrays?|data)|\d+ [MG]i?B|actors?\b",
    places=(*marked(__file__), r"\bBand\b"),
    cures=r"reduc|aggregat|smaller|small result|less data|keep|on the (workers?|actors?)|direct_to_workers"
    r"|where (it|they|the data)",
    never={
        MORE_WORKERS: "they would send as much to the one client",
        LONGER_TASKS: "there are next to no tasks",
        LOCK: "there is no lock",
    },
)


class Band:
    """Wavelets of one band of an image."""

    def __init__(self, number: int) -> None:
        self.coefficients = np.random.default_rng(number).integers(0, 9, (BASES, PIXELS, PIXELS)).astype("f8")

    def step(self, gain: float) -> np.ndarray:
        return self.coefficients * gain

    def mean_step(self, gain: float) -> np.ndarray:
        return self.step(gain).mean(axis=0)


def bands(client: Client) -> list:
    return [client.submit(Band, number, actor=True).result() for number in range(BANDS)]


def bad(client: Client) -> float:
    actors = bands(client)
    image = np.zeros((PIXELS, PIXELS))
    for iteration in range(ITERATIONS):
        calls = [actor.step(1.0 + iteration) for actor in actors]  # <- here
        image += sum(call.result().mean(axis=0) for call in calls)  # <- here
    return float(image.sum().round(3))


def good(client: Client) -> float:
    actors = bands(client)
    image = np.zeros((PIXELS, PIXELS))
    for iteration in range(ITERATIONS):
        calls = [actor.mean_step(1.0 + iteration) for actor in actors]
        image += sum(call.result() for call in calls)
    return float(image.sum().round(3))
