"""Spots of the sun, counted in the frames of an observatory's archive.

source: DKISTDC/dkist pull request 455
date:   2024-10-29
seen:   an array made of the frames of many files took twice as long with the distributed scheduler as without.
cause:  the object that loads a frame refers to the archive of all frames, which is sent along with each task.
cure:   leave the loader only what it needs: its own path and shape.
"""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
FRAMES = scaled(840)
SIDE = 100
CARDS = 40

EXPECTED = Expected(
    cause="each task carries the headers of all frames: they are pickled for each of them",
    place="the line that makes loader or array, the loader's class, or that which computes",
    cure="a loader without a reference to the archive",
    says=r"seriali[sz]\w*|pickl\w*|large (object|graph|task)|(graph|task|loader|object)s?\b.{0,40}(large|big|heavy"
    r"|carr|contain"
    r"|MB|MiB|GB|kB|KiB)|(carr|sen[dt]|ship)\w*.{0,30}(along|with (each|every))|\bgraphs?\b|reference to",
    places=(*marked(__file__), function("FrameLoader"), function("loaders")),
    cures=r"scatter|smaller|only (what|the)|less|without|leave out|reference|(read|load|open)\w* .{0,40}(task"
    r"|worker)|path"
    r"|__getstate__|__reduce__|slim|\bonce\b|out of the (graph|task)",
    never={
        COMPUTED_AGAIN: "each frame is loaded once",
        MORE_WORKERS: "they wait for what is unpacked",
    },
)


class Archive:
    """All frames of an observation with their headers."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.headers = [
            {f"CARD{card:03d}": f"{frame * CARDS + card:010d} value of the card" for card in range(CARDS)}
            for frame in range(FRAMES)
        ]

    def path(self, frame: int) -> Path:
        return self.place / f"frame-{frame:04d}.npy"


class FrameLoader:
    """Reads a frame when it is asked for its pixels."""

    shape = (1, SIDE, SIDE)
    dtype = np.dtype("float32")
    ndim = 3

    def __init__(self, path: Path, archive: Archive | None = None) -> None:
        self.path = path
        self.archive = archive  # <- here

    def __getitem__(self, index) -> np.ndarray:
        return np.load(self.path)[None][index]


def prepare() -> None:
    place = folder("sun")
    rng = np.random.default_rng(19)
    for frame in range(FRAMES):
        np.save(place / f"frame-{frame:04d}.npy", rng.random((SIDE, SIDE), dtype="float32"))


def loaders(archive: Archive) -> list[FrameLoader]:
    return [FrameLoader(archive.path(frame), archive) for frame in range(FRAMES)]  # <- here


def stacked(frames: list[FrameLoader]) -> da.Array:
    parts = [
        da.from_array(
            frame, chunks=frame.shape, name=f"frame-{frame.path.stem}", meta=np.empty((0, 0, 0), "float32")
        )  # <- here
        for frame in frames
    ]
    return da.concatenate(parts)


def spots(frames: da.Array) -> float:
    dark = frames < 0.05
    return float(dark.sum(axis=(1, 2)).std().compute())  # <- here


def bad(client: Client) -> float:
    return spots(stacked(loaders(Archive(folder("sun")))))  # <- here


def good(client: Client) -> float:
    archive = Archive(folder("sun"))
    return spots(stacked([FrameLoader(archive.path(frame)) for frame in range(FRAMES)]))
