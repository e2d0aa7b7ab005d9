"""Background of a sky survey's nights, estimated in passes over images that are kept in memory.

source: ludwig-ai/ludwig pull request 1890
date:   2022-04-09
seen:   a second persist() in a pipeline, meant to save time, cost time: with more in memory, objects were spilled.
cause:  what is persisted does not fit into the workers' memory, so that it is written to disk, and read again by each
        pass.
cure:   do not persist what is cheap to make again.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client, wait

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 2, "threads_per_worker": 2, "memory_limit": "500MiB"}
NIGHTS = scaled(120)
SIDE = 1_250
PASSES = 3

EXPECTED = Expected(
    cause="the persisted images do not fit into memory: they are spilled to disk, and read back by each pass",
    place="the persist()",
    cure="do not persist the images, or keep less of them (as smaller numbers), or give workers more memory",
    says=r"spill|(to|from|on) disk|memory (limit|pressure|is full|was full)|fit\w* (in|into) memory"
    r"|out of memory|paus(e|ed|ing)",
    places=(*marked(__file__), function("clean"), function("images"), r"\bpersist\b", r"(?i)worker|all workers"),
    cures=r"(not|less|without|fewer|drop|remove|avoid|instead of) .{0,30}(persist|keep|kept|memory)|more memory"
    r"|memory_limit"
    r"|release|smaller|float32|fewer|again|less (data|memory)|raise|delete",
    never={
        LONGER_TASKS: "tasks are long enough",
        HOLDS_GIL: "the work is NumPy's, without the GIL",
        LOCK: "no task waits for a lock",
    },
)


def clean(raw: np.ndarray) -> np.ndarray:
    """Counts without the camera's offset, as 64-bit numbers."""
    return raw.astype(float) - 100.0


def exposure(block_info=None) -> np.ndarray:
    """Raw counts of a night."""
    night = block_info[None]["chunk-location"][0]
    ramp = (np.arange(SIDE * SIDE, dtype="i8") * (night + 7) % 3001).astype("u2")
    return ramp.reshape(1, SIDE, SIDE) + np.uint16(100)


def images() -> da.Array:
    chunks = ((1,) * NIGHTS, (SIDE,), (SIDE,))
    return da.map_blocks(exposure, chunks=chunks, dtype="u2").map_blocks(clean, dtype=float)


def background(sky: da.Array) -> float:
    """Mean of the counts, in passes that leave out what is far above the mean of the pass before."""
    limit = np.inf
    for _ in range(PASSES):
        dark = da.where(sky < limit, sky, 0.0)
        mean, square = da.compute(dark.mean(), (dark**2).mean())
        limit = float(mean + 1.5 * np.sqrt(square - mean**2))
    return limit


def bad(client: Client) -> float:
    sky = images().persist()  # <- here
    wait(sky)
    return background(sky)


def good(client: Client) -> float:
    return background(images())
