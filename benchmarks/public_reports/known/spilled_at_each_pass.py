"""A persisted array is a little larger than what workers may keep in memory, and is gone through several times.

source: pangeo-data/pangeo issue 679; dask/distributed issue 4424 (the comment on a workload without spilling)
date:   2019-07-28
seen:   much data is on disk instead of in memory, workers are idle for long stretches of an analysis, and the same is
        far faster where nothing is spilled.
cause:  the workers' memory limit is below what was persisted: each pass reads blocks back from disk, and writes others
        to make room for them, on the worker's event loop.
cure:   workers with as much memory as the data need, which the machine has.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, wait

from benchmarks.public_reports.programs import LONGER_TASKS, PROCESSES, Expected, marked, scaled

CLUSTER: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "900MB"}
GOOD_CLUSTER: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "3GB"}
BLOCKS, SIDE, PASSES = 48, scaled(2_000), 5

EXPECTED = Expected(
    cause="the persisted blocks do not fit, and are spilled and read back at each pass",
    place="the persist, or a computation on it",
    cure="more memory for the workers, or less to keep",
    says=r"spill|disk|memory|fit|evict|unspill|swap",
    places=(*marked(__file__), r"random|standard_normal|passes|sum|mean"),
    cures=r"memory|spill|float32|smaller|less|persist|one (pass|computation)|at once|dask\.compute|together|disk|limit",
    never={
        LONGER_TASKS: "tasks are as long as they are for the disk",
        PROCESSES: "that would make the limit of each lower",
    },
)


def numbers(block_info: dict | None = None) -> np.ndarray:
    place = block_info[None]["chunk-location"][0]
    return np.random.default_rng(place).standard_normal((SIDE, SIDE))


def bad(client: Client) -> float:
    chunks = ((SIDE,) * BLOCKS, (SIDE,))
    array = da.map_blocks(numbers, chunks=chunks, dtype=float, meta=np.empty((0, 0))).persist()  # <- here
    wait(array)  # <- here
    total = 0.0
    for shift in range(PASSES):
        total += float(da.fabs(array - shift / 10).mean().compute())  # <- here
    return total


good = bad
