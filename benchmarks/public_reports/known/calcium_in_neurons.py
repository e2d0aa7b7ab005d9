"""Calcium in neurons: frames of a microscope, brought to the range from 0 to 1.

source: dask/distributed issue 2377
date:   2018-11-01 (the day is not given)
seen:   an array of one image for each chunk had to be normalized by its minimum and maximum; in one expression workers
        ran out of memory, and with the two computed beforehand all images were read three times.
cause:  maximum, minimum and the normalized frames are three computations, each of which reads and cleans all frames.
cure:   keep the frames on the workers (persist) before these, and compute maximum and minimum together.
"""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
from distributed import Client
from scipy import ndimage

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

NEEDS = ("scipy",)
CLUSTER = TWO_BY_ONE
FRAMES = scaled(160)
SIDE = 384
FILES = 20

EXPECTED = Expected(
    cause="the frames are read and cleaned three times, once for each compute: for maximum, minimum and the result",
    place="the lines of compute, or the function that reads a frame",
    cure="persist the frames, or compute together",
    says=r"(comput|read|load|run|ran|done|made|clean|execut)\w*.{0,40}(\bagain\b|twice|more than once"
    r"|(two|three|several|many|2|3|multiple) times|(2|3|2\.\d|3\.\d) ?(x|times))|recomput|repeat|not (kept|persisted)"
    r"|(same|identical) (tasks?|work|keys?|data|frames)",
    places=(*marked(__file__), function("frame"), function("frames")),
    cures=r"persist|together|one compute|single compute|at once|\bonce\b|keep|dask\.compute|cache",
    never={
        LONGER_TASKS: "a task takes tens of milliseconds",
        MORE_WORKERS: "the work itself need not be done",
        MORE_MEMORY: "memory is plenty",
        HOLDS_GIL: "each worker has one thread",
    },
)


def prepare() -> None:
    place = folder("neurons")
    random = np.random.default_rng(41)
    for number in range(FILES):
        image = random.poisson(30.0 + number, (SIDE, SIDE)).astype("uint16")
        np.savez_compressed(place / f"{number:02}.npz", frame=image)


def frame(number: int, place: str) -> np.ndarray:
    """Frame without dead pixels and background."""
    with np.load(f"{place}/{number % FILES:02}.npz") as file:
        image = file["frame"].astype("float32")
    clean = ndimage.median_filter(image, size=3)
    return (clean - ndimage.gaussian_filter(clean, 12.0))[np.newaxis] * (1.0 + number / FRAMES)


def frames() -> da.Array:
    read = dask.delayed(frame, pure=True)
    place = str(folder("neurons"))
    images = [da.from_delayed(read(number, place), (1, SIDE, SIDE), dtype="float32") for number in range(FRAMES)]
    return da.concatenate(images)


def bad(client: Client) -> float:
    movie = frames()
    highest = movie.max().compute()  # <- here
    lowest = movie.min().compute()  # <- here
    normal = (movie - lowest) / (highest - lowest)
    return float(normal.mean(dtype="float64").compute())  # <- here


def good(client: Client) -> float:
    movie = frames().persist()
    highest, lowest = dask.compute(movie.max(), movie.min())
    normal = (movie - lowest) / (highest - lowest)
    return float(normal.mean(dtype="float64").compute())
