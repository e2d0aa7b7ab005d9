"""A map of resistance of the ground, above vaults, is asked for its least, its largest, its mean ...

source: NCAS-CMS/cf-python issue 929 (also NCAS-CMS/cfdm issue 389)
date:   2026-03-09
seen:   each access to the data of a field computes it (and reads its files) again, and takes as long as the first.
cause:  the result of a lazy array is not kept: each compute() starts from the beginning.
cure:   persist the array, or compute all that is wanted in one call.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
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
STRIPS = 12
SIDE = scaled(420)

EXPECTED = Expected(
    cause="the map is computed again for each number that is asked of it",
    place="the compute() calls, or the function that makes the map",
    cure="persist() the map, or compute all numbers together",
    says=r"(comput|run|ran|made|execut|evaluat|calculat)\w* .{0,40}(again|twice|times|repeated|more than once)|recomput"
    r"|same (tasks?|work|results?|graph)|repeat",
    places=(*marked(__file__), function("resistance_of")),
    cures=r"persist|keep|together|once|one (call|compute)|dask\.compute|cache|reuse",
    never={
        MORE_WORKERS: "they are all busy",
        LONGER_TASKS: "the tasks are long",
        MORE_MEMORY: "memory is ample",
    },
)


def resistance_of(block_info: Any = None) -> np.ndarray:
    """Resistance below a strip of the field, by some steps of a relaxation."""
    strip = block_info[None]["chunk-location"][0]
    ground = np.random.default_rng(strip).random((SIDE, SIDE)) + 0.5
    for _ in range(100):
        ground[1:-1, 1:-1] = (ground[:-2, 1:-1] + ground[2:, 1:-1] + ground[1:-1, :-2] + ground[1:-1, 2:]) / 4
        np.sqrt(ground * ground + 1e-6, out=ground)
    return ground


def resistances() -> da.Array:
    ground: da.Array = da.map_blocks(resistance_of, chunks=((SIDE,) * STRIPS, (SIDE,)), dtype=float)
    return ground


def bad(client: Client) -> float:
    ground = resistances()
    least = ground.min().compute()  # <- here
    largest = ground.max().compute()  # <- here
    mean = ground.mean().compute()  # <- here
    spread = ground.std().compute()  # <- here
    first = ground[0, 0].compute()
    hollow = (ground < mean - spread).sum().compute()  # <- here
    dense = (ground > mean + spread).sum().compute()  # <- here
    profile = ground.mean(axis=0).compute()  # <- here
    return float(least + largest + mean + spread + first + hollow + dense + profile.sum())


def good(client: Client) -> float:
    ground = resistances().persist()
    least = ground.min().compute()
    largest = ground.max().compute()
    mean = ground.mean().compute()
    spread = ground.std().compute()
    first = ground[0, 0].compute()
    hollow = (ground < mean - spread).sum().compute()
    dense = (ground > mean + spread).sum().compute()
    profile = ground.mean(axis=0).compute()
    return float(least + largest + mean + spread + first + hollow + dense + profile.sum())
