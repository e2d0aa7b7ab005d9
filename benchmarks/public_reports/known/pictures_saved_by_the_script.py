"""The script smooths and writes what the workers have made, as it comes in.

source: mspass-team/mspass issue 1016; its cure: pull request 1017
date:   2026-08-31
seen:   a pipeline over days, with a function that completes and writes each result: results go to the driver, which is
        busy all the time, whatever the size of the cluster.
cause:  what is done with a result takes longer than the task, and is done by the script, one result after the other.
cure:   complete and write in the task, on the worker.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from distributed import Client, as_completed

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
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

CLUSTER = TWO_BY_ONE
NIGHTS = scaled(28)
SIDE = 1800

EXPECTED = Expected(
    cause="the script completes and writes the results, one after the other, while the workers have nothing to do",
    place="complete, called by the script as the results come in",
    cure="do it in tasks, on the workers",
    says=r"\bclient\b|\bscript\b|main (process|thread|program)|your (own )?(program|process|code)|local(ly)?\b|\bidle\b"
    r"|nothing to do|no work|without work|outside (of )?(the )?(tasks|workers|cluster|dask)"
    r"|between .{0,20}(tasks|results)"
    r"|one (after the other|by one|at a time)|serial(?!iz)|workers? wait",
    places=(*marked(__file__), function("complete"), function("bad"), function("sharpened")),
    cures=r"(in|into|as|within) (a |the |another )?tasks?|(on|to|by) (the )?workers?|submit|client\.map|delayed|move\b"
    r"|let (dask|the workers)|parallel|map_blocks|with dask",
    never={
        MORE_WORKERS: "those there are have nothing to do",
        LONGER_TASKS: "tasks are not what takes time",
        MORE_MEMORY: "a picture has some megabytes",
        HOLDS_GIL: "a worker has one thread",
        COMPUTED_AGAIN: "each is computed once",
    },
)


def exposure(night: int) -> np.ndarray:
    """Picture of a night, of four fields one below the other."""
    field = np.random.default_rng(night).integers(10, 31, (SIDE // 4, SIDE), dtype="u2")
    return np.tile(field, (4, 1))


def sharpened(picture: np.ndarray) -> np.ndarray:
    spectrum = np.fft.rfft2(picture)
    frequencies = np.hypot(np.fft.fftfreq(SIDE)[:, np.newaxis], np.fft.rfftfreq(SIDE))
    return np.fft.irfft2(spectrum * (1.0 + frequencies), picture.shape)


def complete(picture: np.ndarray, path: Path) -> float:
    """Sharpen a picture, write it, and tell how much there is in it."""
    counts = np.clip(np.round(sharpened(picture)), 0, 255).astype("u1")  # <- here
    np.savez_compressed(path, counts=counts)  # <- here
    return float(counts.mean(dtype=float))


def path_of(night: int) -> Path:
    return folder("pictures") / f"{night}.npz"


def bad(client: Client) -> float:
    nights = {future: night for night, future in enumerate(client.map(exposure, range(NIGHTS)))}
    brightness = 0.0
    for future, picture in as_completed(list(nights), with_results=True):
        brightness += complete(picture, path_of(nights[future]))  # <- here
    return brightness


def good(client: Client) -> float:
    pictures = client.map(exposure, range(NIGHTS))
    futures = client.map(complete, pictures, [path_of(night) for night in range(NIGHTS)])
    return sum(client.gather(futures))
