"""Gusts along the flights of drones are interpolated from wind cubes, whose bytes are in the order of other machines.

source: scipy/scipy issue 20880
date:   2024-06-03
seen:   interpolating a few points of a big mapped array is fast, but with an array whose bytes are in the other order
        it needs as much memory as all of it, and time with it.
cause:  map_coordinates works on the byte order of the machine only, and converts a copy of the whole array in each
        call, though it is called for a few points.
cure:   convert the array once before the loop, or interpolate all points in one call.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from distributed import Client
from scipy.ndimage import map_coordinates  # type: ignore[import-untyped]

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("scipy",)
CLUSTER = TWO_BY_ONE
DAYS, FLIGHTS, POINTS = 8, scaled(450), 400
SHAPE = (40, 400, 500)

EXPECTED = Expected(
    cause="each call copies the whole cube, to turn the order of its bytes, for a few points",
    place="the call of map_coordinates in the loop over flights",
    cure="turn the bytes once, before the loop",
    says=r"byte.?order|byte.?swap|endian|>f4|native|cop(y|ies|ied|ying)|convert|map_coordinates|interpolat"
    r"|(whole|entire|all of the) (cube|array|volume)",
    places=(*marked(__file__), function("gusts_of"), function("map_coordinates")),
    cures=r"endian|byte.?order|byte.?swap|native|astype|convert|\bonce\b|(one|single) call|fewer calls|together"
    r"|before the loop|outside (of )?the loop|all (the )?(points|flights|coordinates)|concatenat|batch",
    never={
        LONGER_TASKS: "the tasks are long enough",
        MORE_WORKERS: "the work is not needed at all",
        LOCK: "no lock is held by anybody",
        r"(?i)(faster|slow|other) (disk|storage|file system)": "each file is read once, and fast",
    },
)


def prepare() -> None:
    levels, rows, columns = SHAPE
    for day in range(DAYS):
        plane = np.add.outer(np.sin(np.arange(rows) / (30 + day)), np.cos(np.arange(columns) / 25))
        cube = plane[None, :, :] * np.linspace(1, 3, levels)[:, None, None]
        cube.astype(">f4").tofile(folder("winds") / f"{day}.bin")


def paths(day: int) -> list[np.ndarray]:
    """Points of each flight of a day, as numbers of level, row and column."""
    rng = np.random.default_rng(day)
    limits = np.array(SHAPE)[:, None] - 2
    return [rng.random((3, POINTS)) * limits for _ in range(FLIGHTS)]


def gusts_of(file: Path, native: bool) -> float:
    """Sum of the strongest gust of each flight of a day."""
    winds = np.fromfile(file, dtype=">f4").reshape(SHAPE)
    if native:
        winds = winds.astype("f4")
    return sum(
        float(map_coordinates(winds, path, order=1, prefilter=False).max())  # <- here
        for path in paths(int(file.stem))
    )


def gusts(client: Client, native: bool) -> float:
    files = [folder("winds") / f"{day}.bin" for day in range(DAYS)]
    return float(sum(client.gather(client.map(gusts_of, files, native=native))))


def bad(client: Client) -> float:
    return gusts(client, native=False)


def good(client: Client) -> float:
    return gusts(client, native=True)
