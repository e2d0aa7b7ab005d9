"""Scans of paintings in infrared are smoothed, and stretched to the range of their values.

source: Open-EO/openeo-processes-python pull request 55
date:   2021-10-15
seen:   processes on lazy data were slow; they are quick since what several later steps need is computed once.
cause:  each of the numbers (least, greatest, mean, spread) is a computation of its own of the same lazy array, so
        that all that leads to it is done anew for each.
cure:   compute or persist the array once, or compute all numbers in one go.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
STRIPS, ROWS, COLUMNS, PASSES = scaled(12), 500, 1_000, 22

EXPECTED = Expected(
    cause="the smoothed scan is computed again for each of the numbers, and once more for the result",
    place="the lines with compute in stretched; the task smoothed, which is done five times for each strip",
    cure="persist the smoothed scan before, or compute the numbers together",
    says=r"again|anew|re-?(comput|calculat|do|run|mak|smooth|peat)\w*|twice|(several|many|\d+|five|more than one"
    r"|multiple) (times|computations|computes)"
    r"|more than once|repeated|times over|same (tasks?|work|computation|result)|each (compute|computation)"
    r"|separate comput|not kept|forgotten|released",
    places=(*marked(__file__), function("stretched"), function("smoothed"), function("bad")),
    cures=r"persist|once\b|together|single comput|one comput|dask\.compute|keep|cache|one go|share|store",
    never={
        MORE_WORKERS: "both cores are busy with needless work",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        LONGER_TASKS: "tasks take a third of a second",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def smoothed(block_info: dict | None = None) -> np.ndarray:
    """Strip of a scan, smoothed along both axes."""
    assert block_info is not None
    strip = np.random.default_rng(block_info[None]["chunk-location"][0]).gamma(2.0, 1.0, (ROWS, COLUMNS))
    for _ in range(PASSES):
        strip = (np.roll(strip, 1, 0) + 2 * strip + np.roll(strip, -1, 0)) / 4
        strip = (np.roll(strip, 1, 1) + 2 * strip + np.roll(strip, -1, 1)) / 4
    return strip


def scan() -> da.Array:
    chunks = ((ROWS,) * STRIPS, (COLUMNS,))
    return da.map_blocks(smoothed, chunks=chunks, dtype=float, meta=np.empty((0, 0)))


def stretched(strips: da.Array) -> float:
    """Mean of the stretched scan where it is bright."""
    least = strips.min().compute()  # <- here
    greatest = strips.max().compute()  # <- here
    middle = strips.mean().compute()  # <- here
    spread = strips.std().compute()  # <- here
    bright = (strips - least) / (greatest - least) * (strips > middle + spread)
    return float(bright.sum().compute())  # <- here


def bad(client: Client) -> float:
    return stretched(scan())  # <- here


def good(client: Client) -> float:
    return stretched(scan().persist())
