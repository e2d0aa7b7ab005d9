"""A mean is taken off an array that is larger than the memory of the workers.

source: dask/dask issue 5359 (which points to issue 874)
date:   2019-09-03
seen:   the mean of a very large random array is computed without trouble, but the sum of the array less its mean fills
        the memory until the machine gives up.
cause:  the mean needs every chunk before it is known, and the difference needs every chunk once more afterwards; in one
        graph a chunk is loaded once and kept for the second use, so the whole array has to stay in memory (with
        spilling: has to go to disk and back).
cure:   two passes: compute (or persist) the small mean first, then use it in a second computation that loads the
        chunks again and lets each go at once.

Loading a chunk anew is cheaper than to write it out and read it back.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import TWO_BY_ONE, Expected, folder, function, marked, scaled

CLUSTER = {**TWO_BY_ONE, "memory_limit": "500MB"}
FILES = scaled(96)
STEPS, POINTS = 100, 20_000

EXPECTED = Expected(
    cause="memory: all chunks are held at the same time, because the mean over all of them is needed before any of them"
    " can be used up, so the workers exceed their memory and spill the chunks to disk and read them back (and pause);"
    " the data is about twice what the two workers may hold",
    place="the expression x - x.mean(axis=0) in bad(), computed in one graph: x is used twice, before and after the"
    " reduction; in tasks: the loaded chunks (day)",
    cure="compute (or persist) the mean first, then subtract it in a second pass over the data; or more memory /"
    " smaller"
    " data (float32)",
    says=r"memory|spill|to (the )?disk|from (the )?disk|unspill|paus|(held|kept) (at|until|in|for|by)|used twice",
    places=(*marked(__file__), function("day"), function("series"), r"mean\(axis"),
    cures=r"first\b|(two|second|separate|several) (pass|step|comput|stage|graph)|memory|float32"
    r"|smaller (data|dtype|type|results|arrays)|(load|read|comput|make)\w*\b.{0,30}(again|anew|twice)"
    r"|re-?(load|read|comput)"
    r"|not (keep|hold)|more workers|larger machines",
    never={
        r"(?i)smaller (chunks|partitions)"
        r"|(chunks|partitions) (smaller|are too large)": "all are held, whatever their size",
        r"(?i)memory leak|malloc_trim|trim malloc": "the chunks are needed",
        r"(?i)(not|without|avoid|fewer|less) persist|persist (less|fewer)": "nothing is persisted",
        r"(?i)disk is slow|slow disk|faster disk": "it is what is spilled",
    },
)


def prepare() -> None:
    """Write the measurements, one file per day."""
    rng = np.random.default_rng(5)
    wave = np.sin(np.linspace(0, 20, POINTS))
    for number in range(FILES):
        values = rng.random((STEPS, POINTS), dtype="float32").astype("float64") + wave * number
        np.save(folder("measurements") / f"day-{number:03d}.npy", values)


def day(where: str, block_info: Any) -> np.ndarray:
    return np.load(f"{where}/day-{block_info[None]['chunk-location'][0]:03d}.npy")


def series() -> da.Array:
    return da.map_blocks(
        day,
        str(folder("measurements")),
        chunks=((STEPS,) * FILES, (POINTS,)),
        dtype="float64",
        meta=np.empty((0, 0)),
    )


def bad(client: Client) -> float:
    x = series()
    centred = x - x.mean(axis=0)  # <- here
    return float(abs(centred).sum(axis=0).compute().sum())


def good(client: Client) -> float:
    x = series()
    centred = x - x.mean(axis=0).compute()
    return float(abs(centred).sum(axis=0).compute().sum())
