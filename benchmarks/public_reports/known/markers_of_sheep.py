"""Genetic markers of sheep are counted, a task for each block of the sheet that holds them.

source: limix/pandas-plink issue 35
date:   2024-02-22
seen:   reading a file of 850 MB took four hours since Dask 2024.2. Each of 10,000 calls of a delayed function computed
        a hash of the buffer with the whole file, of about a second each.
cause:  delayed(..., pure=True) names a task by a hash of its arguments, and one of them holds all the data.
cure:   pure=False.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import dask
import numpy as np
from dask.delayed import Delayed
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_TWO, Expected, folder, marked, scaled

CLUSTER = TWO_BY_TWO
SHEEP = 60_000
MARKERS = 1_000
BLOCKS = scaled(200)

EXPECTED = Expected(
    cause="the client computes a hash of all the data for each call of the delayed function",
    place="the call of the delayed function with pure=True",
    cure="pure=False, or names of the tasks given by hand",
    says=r"hash|token|\bnam(e|es|ing)\b.{0,30}\b(task|key|argument)|pure=|\bpure\b(?! Python)"
    r"|client .{0,80}(build|mak|prepar|construct)\w*.{0,20}graph"
    r"|(build|mak|prepar|construct)\w* (of )?(the |a |its )?graph",
    places=(*marked(__file__), r"\bcounted\b"),
    cures=r"pure|hash|token|dask_key_name|name|wrap|once|scatter|outside",
    never={
        LONGER_TASKS: "it is the client that works, and the graph has 200 tasks",
        MORE_WORKERS: "workers wait for the client",
    },
)


@dataclass
class Sheet:
    """Markers of all sheep, which other processes open by its path."""

    path: str
    markers: np.ndarray

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return opened, (self.path,)


@cache
def opened(path: str) -> Sheet:
    return Sheet(path, np.fromfile(path, dtype="u1").reshape(MARKERS, SHEEP))


def path_of_sheet() -> str:
    return str(folder("markers_of_sheep") / "flock.bin")


def prepare() -> None:
    """Write the sheet."""
    np.random.default_rng(3).integers(0, 3, (MARKERS, SHEEP), dtype="u1").tofile(path_of_sheet())


def carriers(sheet: Sheet, first: int, last: int) -> float:
    block = sheet.markers[first:last].astype("f4")
    return float(np.corrcoef(block[:2])[0, 1] + block.mean())


def counted(sheet: Sheet, pure: bool) -> list[Delayed]:
    count = dask.delayed(carriers, pure=pure)
    width = max(2, MARKERS // BLOCKS)
    firsts = [i * width % (MARKERS - width) for i in range(BLOCKS)]
    return [count(sheet, first, first + width) for first in firsts]  # <- here


def bad(client: Client) -> float:
    return sum(dask.compute(*counted(opened(path_of_sheet()), pure=True)))


def good(client: Client) -> float:
    return sum(dask.compute(*counted(opened(path_of_sheet()), pure=False)))
