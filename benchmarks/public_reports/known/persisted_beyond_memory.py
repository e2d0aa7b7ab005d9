"""An array that is larger than the workers' memory is persisted, and then reduced twice.

source: dask/dask issue 6366 (what happens to a persisted dataset that does not fit); of the same kind: dask/distributed
        issue 4061 (workers that write and read back their data, "disk-write" and "disk-read" all over the dashboard)
date:   2020-07-02 (the other 2020-08-21)
seen:   after persist() everything is slow, the disk is busy, and the workers' folder has grown to the size of the data.
cause:  persisted blocks have to be kept: what does not fit is pickled to the disk, and read again by each reduction.
cure:   no persist: compute all that is wanted at once, so that a block is dropped as soon as it is reduced (or more
        memory, or a smaller dtype).
"""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import HOLDS_GIL, LONGER_TASKS, PROCESSES, Expected, function, marked, scaled

CLUSTER = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "640MiB"}
BLOCKS = scaled(64)
SHAPE = (1000, 4000)

EXPECTED = Expected(
    cause="the persisted blocks do not fit in the workers' memory: they are spilled to the disk and read back,"
    " by which the"
    " workers are held up",
    place="the persist() (the tasks of record); spilling in the workers",
    cure="no persist (one compute of all reductions), or more memory, or smaller data (float32)",
    says=r"spill|memory|disk\b|unspill|evict|swap|pause",
    places=(*marked(__file__), function("record"), function("bad"), function("persist"), r"mean|std|reduc"),
    cures=r"persist|memory|(one|a single|same) compute|\bonce\b|together|dask\.compute\(|float32|smaller|dtype"
    r"|release|delete|\bdel\b"
    r"|more workers|do not keep|keep fewer|stream|reduc",
    never={
        LONGER_TASKS: "they are tenths of a second, and larger ones need more memory",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "one thread a worker",
        r"(?i)memory leak": "nothing leaks",
        r"(?i)\b(add|call|use|try)\b[^.\n]{0,20}\bpersist\(\)": "it is persisted, which is the fault",
    },
)


def record(block_info=None) -> np.ndarray:
    number = block_info[None]["chunk-location"][0]
    return np.random.default_rng(number).random(SHAPE)


def records() -> da.Array:
    rows, columns = SHAPE
    return da.map_blocks(record, chunks=((rows,) * BLOCKS, (columns,)), dtype=float, meta=np.empty((0, 0)))


def bad(client: Client) -> float:
    kept = records().persist()  # <- here
    mean = kept.mean().compute()  # <- here
    spread = kept.std().compute()  # <- here
    return float(mean + spread)


def good(client: Client) -> float:
    once = records()
    mean, spread = dask.compute(once.mean(), once.std())
    return float(mean + spread)
