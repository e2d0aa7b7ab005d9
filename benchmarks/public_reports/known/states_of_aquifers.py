"""Aquifers are stepped through the days of a year with the rain of each day; states stay on the cluster as futures.

source: dask/distributed issue 2389
date:   2018-12-01
seen:   results that are dictionaries or instances of one's own classes are sent from worker to worker, though tasks
        could as well run where they are.
cause:  Dask takes the size of such an object from sys.getsizeof, which counts a few bytes whatever the object holds: to
        the scheduler, moving it costs nothing, so it goes to wherever the small array of the day is, or a thread is
        free.
cure:   tell Dask the size (a __sizeof__ of the class, or dask.sizeof.sizeof.register), so that the small array moves.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
AQUIFERS, DAYS = 8, scaled(130)
LAYERS, CELLS, RAIN = 20, 250_000, 125_000


class Aquifer:  # <- here
    """Heads of the water in the layers of an aquifer."""

    def __init__(self, layers: dict[str, np.ndarray]) -> None:
        self.layers = layers


class SizedAquifer(Aquifer):
    """The same, with a size."""

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sum(layer.nbytes for layer in self.layers.values())


EXPECTED = Expected(
    cause="large states move between the workers at many steps, as their size is not known: they count as some bytes",
    place="the submit of a step, the function step, or the class Aquifer",
    cure="a __sizeof__ (or a registered sizeof) for the class; or keep states where they are (workers=, an actor)",
    says=r"sizeof|(size|bytes|nbytes)\W[^\n]{0,60}(wrong|unknown|not known|under|too (small|low)|report|estimat|measur)"
    r"|(wrong|unknown|under|report|estimat)\w*[^\n]{0,40}\bsizes?\b|transfer|between (the )?workers|worker to worker"
    r"|(data|states?|results?|inputs?|dependenc\w+) (is |are |was |were )?(moved?|moving|sent|copied|shipped)"
    r"|(mov|send|cop|shipp)(es|e|ing|ies|y|s)? [^\n]{0,40}(data|states?|results?|inputs?|dependenc)|communicat",
    places=(*marked(__file__), function("step"), function("Aquifer")),
    cures=r"sizeof|size of|\bsizes?\b|workers=|\bactors?\b"
    r"|where (the|their|its|they|it)\b[^\n]{0,40}(is|are|lies?|lives?)"
    r"|same worker|one worker|locality|keep [^\n]{0,40}(worker|place)|less data|smaller|fewer bytes|move less|one task",
    never={
        MORE_WORKERS: "both cores are busy with data that need not move",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def aquifer_of(number: int, kind: type[Aquifer]) -> Aquifer:
    """State on the first day."""
    return kind({f"layer{layer}": np.full(CELLS, 10.0 + number + layer) for layer in range(LAYERS)})


def rain_of(day: int) -> np.ndarray:
    """Rain of a day, in a coarse grid."""
    return np.random.default_rng(day).gamma(0.5, 2.0, RAIN)


def step(aquifer: Aquifer, rain: np.ndarray) -> Aquifer:
    """State on the next day: some of the rain arrives on top, some of the water there flows off."""
    arrives = float(rain.mean())
    return type(aquifer)(aquifer.layers | {"layer0": aquifer.layers["layer0"] * 0.999 + 0.01 * arrives})


def stored(aquifer: Aquifer) -> float:
    """Water in an aquifer."""
    return sum(float(heads.mean()) for heads in aquifer.layers.values())


def water(client: Client, kind: type[Aquifer]) -> float:
    """Water in all aquifers after the last day."""
    rains = client.map(rain_of, range(DAYS))
    states = client.map(aquifer_of, range(AQUIFERS), kind=kind)
    for rain in rains:
        states = [client.submit(step, state, rain) for state in states]  # <- here
    return float(sum(client.gather(client.map(stored, states))))


def bad(client: Client) -> float:
    return water(client, Aquifer)


def good(client: Client) -> float:
    return water(client, SizedAquifer)
