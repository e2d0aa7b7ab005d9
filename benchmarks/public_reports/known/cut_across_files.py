"""Chunks cut across compressed files, and each file is read again for every chunk.

source: pydata/xarray issue 1440; NatLabRockies/PVDegradationTools issue 250
date:   2017-06-06 (PVDegradationTools: 2025-09-23)
seen:   data that is stored in compressed chunks is read with other ones: it takes many times as long as with those.
cause:  a chunk that cuts across the stored ones decompresses them whole, to take a part: once for each chunk.
cure:   chunks that are those of the file, or multiples of them; rechunk after reading where others are needed.

Files are NumPy's own, one for each day (with the same data, as compressing takes long); the chunks are bands of
latitude over all days.
"""

from __future__ import annotations

import shutil

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
DAYS = scaled(15)
HOURS, LATITUDES, LONGITUDES = 24, 300, 360
BAND = 20

EXPECTED = Expected(
    cause="each file is read and decompressed once for every chunk: 15 times",
    place="the line that loads a file, or the compute() of the array",
    cure="chunks as the files have them",
    says=r"(read|decompress|load|open)\w*\b.*\b(again|\d+ times|repeated|each chunk|every chunk)"
    r"|(again|\d+ times|repeated\w*)\b.*\b(read|decompress|file)",
    places=(*marked(__file__), function("Archive"), function("__getitem__")),
    cures=r"chunks?.*\b(files?|stored?|align|match|multiple)|align|(read|load|decompress)\w* (it|each|them).* once"
    r"|once for all",
    never={
        r"(?i)faster disks": "the files are in memory, compressed",
        PROCESSES: "the cores are busy",
        LONGER_TASKS: "the tasks are long enough",
    },
)


class Archive:
    """Array of hours, latitudes and longitudes in a compressed file for each day."""

    shape = (DAYS * HOURS, LATITUDES, LONGITUDES)
    dtype = np.dtype("f4")
    ndim = 3

    def __init__(self, place: str) -> None:
        self.place = place

    def __getitem__(self, index: tuple[slice, slice, slice]) -> np.ndarray:
        hours, *others = index
        parts = []
        for day in range(hours.start // HOURS, -(-hours.stop // HOURS)):
            with np.load(f"{self.place}/day-{day}.npz") as file:
                parts.append(file["temperature"][(slice(None), *others)])  # <- here
        skipped = hours.start // HOURS * HOURS
        return np.concatenate(parts)[hours.start - skipped : hours.stop - skipped]


def prepare() -> None:
    values = np.random.default_rng(0).normal(8, 2, (HOURS, LATITUDES, LONGITUDES)).astype("f4").round(1)
    first = folder("archive") / "day-0.npz"
    np.savez_compressed(first, temperature=values)
    for day in range(1, DAYS):
        shutil.copy(first, folder("archive") / f"day-{day}.npz")


def mean_square(chunks: tuple[int, int, int]) -> float:
    temperature = da.from_array(Archive(str(folder("archive"))), chunks=chunks, name=f"temperature-{chunks}")
    return float((temperature.astype("f8") ** 2).mean().compute())  # <- here


def bad(client: Client) -> float:
    return mean_square((DAYS * HOURS, BAND, LONGITUDES))


def good(client: Client) -> float:
    return mean_square((HOURS, LATITUDES, LONGITUDES))
