"""A model is fitted block by block; the blocks are read far ahead of the fit, spilled, and read back.

source: dask/dask-ml issue 765; also dask/distributed issue 7552
date:   2020-12-07 (the other 2023-02-16)
seen:   incremental training on data larger than memory: reading was much faster than fitting, nearly all blocks ended
        up on the workers' disks, and each fit got slower because its block had to be loaded back.
cause:  every read is ready to run from the start and the fits form a chain; the scheduler lets the reads run on, so
        that data piles up beyond the memory limit and is written to and read from disk.
cure:   the thread: keep the reads from running ahead, with an extra edge from an early fit to a later read (at the
        most so many blocks in memory); no setting did it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import TWO_BY_ONE, Expected, compute_for, folder, function, marked, scaled

CLUSTER = {**TWO_BY_ONE, "memory_limit": "700MB"}
BLOCKS = scaled(60)
ROWS, COLUMNS = 40_000, 120
AHEAD = 3

EXPECTED = Expected(
    cause="read runs far ahead of the chain of partial_fit; the blocks wait in memory beyond the workers' limit, are"
    " spilled to disk and read back (and moved between workers) before each fit",
    place="the tasks of read (delayed(read)(path)), whose results pile up, while partial_fit is a sequential chain",
    cure="limit how far reading may run ahead: make a read depend on an earlier fit, or read inside partial_fit, or"
    " submit only a few blocks at a time (more memory hides it)",
    says=r"ahead|pil(e|es|ed|ing) up|accumulat|spill|to (the )?disk|from (the )?disk|read back|unspill|overproduc"
    r"|memory (limit|is full|pressure|use|runs|ran)|(beyond|above|over|exceed\w*|more than) .{0,30}memory"
    r"|memory.{0,40}(exceed|full|beyond|above|limit)|too (early|soon)|(held|wait\w*|kept|stay) in memory|paus",
    places=(*marked(__file__), function("read"), function("partial_fit")),
    cures=r"ahead|depend|limit|throttl|back-?pressure|at a time|at once|in flight|inside|within|in the same task"
    r"|same task"
    r"|as_completed|semaphore|resources|(few|fewer|less)\b.{0,40}\b(blocks|reads?|data|memory|tasks|results)|in batches"
    r"|more memory|larger memory|(raise|increase|add|give)\b.{0,40}memory|later|just before"
    r"|when (it is|they are) needed"
    r"|release|free",
    never={
        r"(?i)memory leak": "the blocks are held on purpose",
        r"(?i)(blocks|chunks|partitions) are too (small|large)|smaller (blocks|chunks|partitions)": "as much piles up",
        r"(?im)(^|[.:;])\s*persist\b|persist (the )?blocks": "all of them would be held",
        r"(?im)(^|[.:;])\s*scatter\b": "the client does not have the blocks",
    },
)


def paths() -> list[Path]:
    return [folder("blocks") / f"block-{number:03d}.npy" for number in range(BLOCKS)]


def prepare() -> None:
    for number, path in enumerate(paths()):
        np.save(path, np.random.default_rng(number).random((ROWS, COLUMNS)))


def read(path: str | os.PathLike[str], after: object = None) -> np.ndarray:
    return np.load(path)


def fresh() -> np.ndarray:
    return np.zeros(COLUMNS)


def partial_fit(weights: np.ndarray, block: np.ndarray) -> np.ndarray:
    compute_for(0.08)
    return weights + block[::100].mean(axis=0)


def bad(client: Client) -> float:
    weights = delayed(fresh)()
    for path in paths():
        block = delayed(read)(path)  # <- here
        weights = delayed(partial_fit)(weights, block)
    return float(client.compute(weights).result().sum())


def good(client: Client) -> float:
    history = [delayed(fresh)()]
    for number, path in enumerate(paths()):
        block = delayed(read)(path, after=history[max(0, number - AHEAD)])
        history.append(delayed(partial_fit)(history[-1], block))
    return float(client.compute(history[-1]).result().sum())
