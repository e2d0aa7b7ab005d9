"""Events of a detector's frames are collected, frame by frame, into a growing array.

source: deepmodeling/deepmd-kit pull request 2259; numpy/numpy issue 17090
date:   2023-01-17 (numpy: 2020-08-15)
seen:   a loop with np.append takes ten minutes, where one with a list takes less than one.
cause:  an array cannot grow: each append makes a new array and copies all that was collected so far.
cure:   collect the pieces in a list and concatenate them once.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
RUNS, FRAMES, PIXELS = 10, scaled(520), 40_000

EXPECTED = Expected(
    cause="np.append copies the whole of the growing array for each frame, so that a task spends most of its time in"
    " copying",
    place="the line with np.append in events_of_run (numpy's append / concatenate)",
    cure="collect the pieces in a list and concatenate once, or allocate the array before",
    says=r"np\.append|\bappend|concatenat|cop(y|ies|ied|ying)|grow(s|ing)?\b|quadratic|vstack|hstack",
    places=(*marked(__file__), function("events_of_run"), r"\bappend\b|concatenate"),
    cures=r"list\b|once\b|pre-?allocat|allocat|concatenat|at the end|in one|append|together|collect",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "a task takes seconds",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "there is enough",
    },
)


def frame(rng: np.random.Generator) -> np.ndarray:
    """Energies above the threshold."""
    counts = rng.standard_exponential(PIXELS, dtype="f4")
    return counts[counts > 2.5].astype("f8")


def spectrum(events: np.ndarray) -> float:
    counts, edges = np.histogram(events, bins=200, range=(0, 20))
    return float((counts * edges[1:]).sum() / counts.sum())


def events_of_run(run: int) -> float:
    rng = np.random.default_rng(run)
    events = np.empty(0)
    for _ in range(FRAMES):
        events = np.append(events, frame(rng))  # <- here
    return spectrum(events)


def events_of_run_at_once(run: int) -> float:
    rng = np.random.default_rng(run)
    return spectrum(np.concatenate([frame(rng) for _ in range(FRAMES)]))


def bad(client: Client) -> float:
    return sum(client.gather(client.map(events_of_run, range(RUNS))))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(events_of_run_at_once, range(RUNS))))
