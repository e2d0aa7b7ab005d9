"""Values at a few stations are taken from satellite scenes, each of which is a single chunk.

source: opendatacube/odc-stac issue 115
date:   2023-05-09
seen:   the time series of a point takes minutes with one library and seconds with another one, for the same scenes.
cause:  chunks={} makes each band of a scene one chunk: to have a pixel, a task reads, unpacks and converts millions.
cure:   chunks of some hundred pixels a side, so that only those with a station are read.
"""

from __future__ import annotations

from pathlib import Path

import dask
import dask.array as da
import h5py
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("h5py",)
CLUSTER = TWO_BY_ONE
BANDS = ("red", "nir", "swir")
SCENES = scaled(16)
SIDE, TILE = 2000, 250
STATIONS = ((130, 1710), (815, 402), (1504, 1503), (610, 1220))

EXPECTED = Expected(
    cause="a task reads and converts a whole scene, of which four pixels are used",
    place="where the stack is made with chunks of a scene, the reader, or the selection of the pixels",
    cure="smaller chunks, or a reader that takes only what is needed",
    says=r"(whole|entire|full|all of the) (scene|image|file|array|chunk|block|band|raster|data)"
    r"|thrown away|discard|drop"
    r"|unused|not (used|needed)|only .{0,30}(part|few|some|small|fraction|rows|pixels|values|used|needed|kept)"
    r"|(few|fraction|share|small part|part|little) of|more (data )?than .{0,15}(need|use)|(large|big|huge)\w* chunks?"
    r"|chunks? .{0,30}(large|big|huge|too)|(small|tiny) (part|selection|piece|result)s?|selected",
    places=(
        *marked(__file__),
        function("reflectance"),
        function("counts_of"),
        function("series"),
        function("stack"),
        r"dataset\.py",
    ),
    cures=r"small(er)? (chunks|blocks|tiles|pieces|reads)|\bchunks?\b|only (what|the|those)|(select|slice|crop|subset"
    r"|filter|index)\w* .{0,30}(before|first|while|when|early|in the read|as you)|before (reading|loading|convert)"
    r"|\bread (less|only|just)|window|less data|rechunk",
    never={
        LONGER_TASKS: "tasks do too much already",
        MORE_MEMORY: "nothing is kept",
        MORE_WORKERS: "nearly all of the work is for nothing",
        HOLDS_GIL: "a worker has one thread",
    },
)


def prepare() -> None:
    for scene in range(SCENES):
        rng = np.random.default_rng(scene)
        with h5py.File(folder("scenes") / f"{scene}.h5", "w") as file:
            for band in BANDS:
                counts = (rng.integers(0, 16, (SIDE, SIDE)) + np.arange(SIDE) // 8).astype("u2")
                file.create_dataset(band, data=counts, chunks=(TILE, TILE), compression="gzip", compression_opts=1)


def counts_of(path: Path, band: str, rows: slice, columns: slice) -> np.ndarray:
    with h5py.File(path) as file:
        return file[band][rows, columns]  # <- here


def reflectance(place: Path, block_info: dict | None = None) -> np.ndarray:
    """Window of a band of a scene."""
    (scene, _), (band, _), *window = block_info[None]["array-location"]
    counts = counts_of(place / f"{scene}.h5", BANDS[band], *(slice(*limits) for limits in window))  # <- here
    radiance = np.exp(np.log1p(counts.astype(float)) * 0.97)  # <- here
    return (np.pi * radiance / (1500.0 + np.sqrt(radiance)))[np.newaxis, np.newaxis]  # <- here


def stack(side: int) -> da.Array:
    """All scenes, in chunks of so many pixels a side."""
    sides = (side,) * (SIDE // side)
    chunks = ((1,) * SCENES, (1,) * len(BANDS), sides, sides)
    return da.map_blocks(reflectance, folder("scenes"), chunks=chunks, dtype=float, meta=np.empty((0,) * 4))  # <- here


def greenness(bands: da.Array) -> da.Array:
    red, nir = bands[:, 0], bands[:, 1]
    return (nir - red) / (nir + red + bands[:, 2])


def series(scenes: da.Array) -> np.ndarray:
    points = [scenes[:, :, row, column] for row, column in STATIONS]  # <- here
    return np.array(dask.compute(*map(greenness, points)))  # <- here


def bad(client: Client) -> float:
    return float(np.abs(series(stack(SIDE))).mean())  # <- here


def good(client: Client) -> float:
    return float(np.abs(series(stack(TILE))).mean())
