"""Each task starts a process pool of its own for its block.

source: dask/distributed issue 3472
date:   2020-02-13
seen:   map_blocks over blocks of some ten MB took minutes although the function is quick; a function that returns its
        block unchanged took 10 to 15 s on 100 MB that way, and less than a second without.
cause:  the mapped function computes its block with the multiprocessing scheduler (to have a fresh process): every task
        starts a process, which imports everything anew, and the block is pickled there and back.
cure:   call the function in the task itself, which the reporter timed. (One who needs processes should keep them, not
        start one for each block.)

Workers are not daemons here, as daemons may not have child processes.
"""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LOCK, PROCESSES, TWO_BY_TWO, Expected, function, marked, scaled

CLUSTER = TWO_BY_TWO
CONFIG = {"distributed.worker.daemon": False}
BLOCKS = scaled(8)

EXPECTED = Expected(
    cause="each task starts a process pool, and waits for it",
    place="the compute() in the mapped function",
    cure="call the function in the task itself, or keep one pool",
    says=r"child process|process(es)? (pool|that)|pool of processes|starts? .*process|multiprocessing"
    r"|ProcessPool|spawn",
    places=(*marked(__file__), function("sharpen_elsewhere")),
    cures=r"in the task( itself)?|directly|without (a |the )?(pool|process)|keep .*(pool|process)|once|no process"
    r"|not start|do not start|instead of starting",
    never={
        LOCK: "no lock is held: the process computes",
        PROCESSES: "there are too many processes already",
    },
)


def sharpen(block: np.ndarray) -> np.ndarray:
    """Some tenths of a second for 16 MB."""
    out = block
    for _ in range(6):
        out = np.sqrt(np.abs(out - 0.1 * np.roll(out, 1, axis=-1)))
    return out


def sharpen_elsewhere(block: np.ndarray) -> np.ndarray:
    return dask.delayed(sharpen)(block).compute(scheduler="processes", num_workers=1)  # <- here


def total(function: object) -> float:
    images = da.random.default_rng(0).random((BLOCKS, 2_000, 1_000), chunks=(1, -1, -1))
    return float(images.map_blocks(function, dtype="f8", meta=np.empty((0, 0, 0))).sum().compute())


def bad(client: Client) -> float:
    return total(sharpen_elsewhere)


def good(client: Client) -> float:
    return total(sharpen)
