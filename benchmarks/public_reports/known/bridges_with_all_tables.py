"""Bridges are rated one by one, by a function that looks up materials and loads in tables, with joblib on Dask.

source: dask/dask issue 2665
date:   2017-09-07
seen:   a loop of joblib, whose calls have some large arguments in common, runs well with joblib's own processes. With
        Dask as its backend little or nothing happens, and logs say that the event loop does not respond.
cause:  the arguments that all calls have in common are pickled for each call, pass through the scheduler, and are
        unpickled for each call. (Today's joblib scatters arrays by itself, but no dictionaries and lists.)
cure:   give them to the backend once, as scatter=[...], or let workers load them: the latter is done here, as scattered
        dictionaries made it no faster when it was tried with joblib 1.6.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import joblib  # type: ignore[import-untyped]
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

NEEDS = ("joblib",)
CLUSTER = TWO_BY_ONE
BRIDGES = scaled(24)
ENTRIES = 140_000

EXPECTED = Expected(
    cause="two large tables go with each call: they are pickled, sent and unpickled for each bridge",
    place="the calls of Parallel in ratings, their tasks, or rating",
    cure="scatter=[materials, loads] of the backend, or tables that workers load themselves",
    says=r"pickl|seriali[sz]|(large|big|heavy|huge) (\w+ )?(graphs?|objects?|arguments?|functions?|inputs?|messages?"
    r"|tasks?\b(?! stream)|data|tables?|dict)|(travel|sent|shipped|copied|moved|passed|transferred) (\w+ ){0,4}(with|in"
    r"|for|to) (each|every|all)|(each|every|all) (tasks?|calls?) (\w+ ){0,3}(carr|hold|bring|contain|includ|ship|gets?)"
    r"|graph.{0,60}(large|big|\bMB\b|\bMiB\b|megabytes|size)|(\bMB\b|\bMiB\b|bytes).{0,40}(each|every|per) (task|call)"
    r"|same (data|arguments?|objects?|tables?|values?)",
    places=(*marked(__file__), function("ratings"), function("rating"), r"(?i)batch|joblib"),
    cures=r"scatter|(send|give|pass|ship|move|load).{0,50}\bonce\b|once (per|for each|on each|to each) worker|on the"
    r" workers?|(inside|in|within|by) (the|each) (task|worker)|smaller (arguments?|inputs?|tables?)|only (what"
    r"|the part)|publish|persist|futures?\b|delayed\(|arrays?",
    never={
        HOLDS_GIL: "one thread a worker",
        MORE_WORKERS: "the script packs for all of them",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each bridge is rated once",
        LOCK: "there is none",
    },
)


def tables() -> tuple[dict[str, float], dict[str, float]]:
    """Strength of materials and loads of roads, by their codes."""
    strengths = np.random.default_rng(1).random(ENTRIES).tolist()
    weights = np.random.default_rng(2).random(ENTRIES).tolist()
    materials = {f"material {number}": strength for number, strength in enumerate(strengths)}
    loads = {f"road {number}": weight for number, weight in enumerate(weights)}
    return materials, loads


def rating(bridge: int, materials: dict[str, float], loads: dict[str, float]) -> float:
    """How much of its strength a bridge needs."""
    compute_for(0.12)
    picked = np.random.default_rng(bridge).integers(0, ENTRIES, (2, 200))
    strength = sum(materials[f"material {number}"] for number in picked[0])
    return sum(loads[f"road {number}"] for number in picked[1]) / strength


@functools.cache
def tables_of_process() -> tuple[dict[str, float], dict[str, float]]:
    return tables()


def rating_by_own_tables(bridge: int) -> float:
    return rating(bridge, *tables_of_process())


def ratings(rated: Callable[..., float], *given: dict[str, float]) -> float:
    with joblib.parallel_config("dask"):
        calls = (joblib.delayed(rated)(bridge, *given) for bridge in range(BRIDGES))
        return float(sum(joblib.Parallel(batch_size=1)(calls)))  # <- here


def bad(client: Client) -> float:
    return ratings(rating, *tables())  # <- here


def good(client: Client) -> float:
    return ratings(rating_by_own_tables)
