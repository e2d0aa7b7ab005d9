"""A slow function is mapped over a few dozen images, which make a small array.

source: hyperspy/hyperspy issue 3152; its cure: pull requests 3198 and 3489
date:   2023-05-12
seen:   mapping a function that takes a second over twenty items takes twenty seconds, whatever the number of workers.
cause:  chunks are chosen by size in bytes: a small array is one chunk, however long the function takes for it, so there
        is one task.
cure:   chunks of a few images each, as many as cores at least.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client
from scipy import ndimage

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
NEEDS = ("scipy",)
IMAGES, SIDE, WIDTH = 32, scaled(240), 21

EXPECTED = Expected(
    cause="the array is one chunk, so one task does all, on one core",
    place="where the array is made or mapped, or the function in the task",
    cure="smaller chunks",
    says=r"(one|single|1|too few|few|fewer) (\w+ )?(chunk|partition|task|block|worker|thread|core)s?|only one\b|idle"
    r"|nothing to do|parallel|chunks|serial|critical path|longest task|waits? for",
    places=(*marked(__file__), function("cleaned"), r"median_filter|percentile_filter|rank_filter"),
    cures=r"chunk|rechunk|smaller|more (tasks|blocks|partitions|pieces)|split|divide|parallel|several",
    never={
        MORE_WORKERS: "one of two has nothing to do already",
        r"(?i)bigger (partitions|chunks)|longer tasks|tasks are too small": "the one there is is too long",
        LONGER_TASKS: "the one there is is too long",
    },
)


def images() -> np.ndarray:
    return np.random.default_rng(1).random((IMAGES, SIDE, SIDE), dtype="f4")


def cleaned(stack: np.ndarray) -> np.ndarray:
    return np.stack([ndimage.median_filter(image, WIDTH) for image in stack])  # <- here


def bad(client: Client) -> float:
    stack = da.from_array(images())  # <- here
    return float(stack.map_blocks(cleaned, meta=np.empty((0, 0, 0), "f4")).mean().compute())  # <- here


def good(client: Client) -> float:
    stack = da.from_array(images(), chunks=(4, -1, -1))
    return float(stack.map_blocks(cleaned, meta=np.empty((0, 0, 0), "f4")).mean().compute())
