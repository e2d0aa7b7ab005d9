"""Films are written to compressed files frame by frame, as they are denoised.

source: TheDeanLab/navigate issue 596; of the same kind: h5py/h5py issue 66
date:   2023-08-22 (issue 66: 2012-12-27, of 2009)
seen:   writing a stack takes much longer than it should; most frames are slow, others are not. With chunks of one frame
        all are written in the same short time. With compression, writing by the frame is slower by one to two orders of
        magnitude.
cause:  a chunk of the file spans many frames, and is too large for the library's cache: it is read, unpacked, changed,
        packed and written again for each of them.
cure:   chunks of one frame, or frames written by as many as make a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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
FILMS = scaled(4)
FRAMES, SIDE = 10, 1024

EXPECTED = Expected(
    cause="chunks of a file span many frames, and are unpacked and packed again for each frame that is written",
    place="write, where it stores a frame, or where it makes the data set",
    cure="chunks of a frame, or writing as many frames at a time as a chunk has",
    says=r"chunks?\b|(small|many|single|separate) writes|piece by piece|frame by frame|again|rewrit\w*|re-?pack\w*"
    r"|(re|un|de)-?compress|unpack|one (frame|at a time|by one)|many times",
    places=(*marked(__file__), function("write"), function("recorded"), r"dataset\.py|__setitem__"),
    cures=r"chunks?\b|(larger|fewer|bigger|whole|several|more) .{0,30}(writes?|frames?|pieces|at once|at a time)"
    r"|at once|in one (write|go)|buffer|collect|\bcache|together|batch",
    never={
        LONGER_TASKS: "a task takes seconds",
        MORE_WORKERS: "the cores are busy",
        MORE_MEMORY: "a film has some megabytes",
        HOLDS_GIL: "a worker has one thread",
    },
)


def frames(film: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(film)
    scene = rng.integers(0, 3000, (SIDE, SIDE))
    for _ in range(FRAMES):
        yield (scene + rng.integers(0, 30, (SIDE, SIDE))).astype("u2")


def denoised(frame: np.ndarray) -> np.ndarray:
    """Frame without its darkest part."""
    return np.where(frame < np.percentile(frame, 20), 0, frame).astype("u2")


def write(film: int, path: Path, chunks: tuple[int, int, int]) -> None:
    with h5py.File(path, "w") as file:
        data = file.create_dataset(  # <- here
            "film", (FRAMES, SIDE, SIDE), "u2", chunks=chunks, compression="gzip", compression_opts=1
        )
        for number, frame in enumerate(frames(film)):
            data[number] = denoised(frame)  # <- here


def recorded(film: int, place: Path, chunks: tuple[int, int, int]) -> float:
    """Mean of a film, as it is in its file."""
    path = place / f"film-{film}-{chunks[0]}.h5"
    write(film, path, chunks)  # <- here
    with h5py.File(path) as file:
        return float(file["film"][:].mean(dtype=float))


def archive(client: Client, chunks: tuple[int, int, int]) -> float:
    futures = client.map(recorded, range(FILMS), place=folder("films"), chunks=chunks)  # <- here
    return sum(client.gather(futures))  # <- here


def bad(client: Client) -> float:
    return archive(client, (FRAMES, SIDE, SIDE // 2))  # <- here


def good(client: Client) -> float:
    return archive(client, (1, SIDE, SIDE))
