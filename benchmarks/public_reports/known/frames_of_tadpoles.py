"""Frames of a film of tadpoles, a file each, are read as one array.

source: dask/dask-image issue 181 (and pull request 182)
date:   2021-01-19
seen:   reading 398 images as a Dask array takes 24 times as long as reading them in a loop; with a function of one's
        own that reads one file in a task, it is fast.
cause:  to read its frame, each task makes the sequence of all files that the pattern matches, and that looks into all
        of them. So work grows by the square of the number of files.
cure:   in a task, open only the file of its own frame.
"""

from __future__ import annotations

from glob import glob

import dask.array as da
import numpy as np
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    TWO_BY_TWO,
    WAITS_FOR_CORES,
    Expected,
    folder,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
FRAMES = scaled(400)
SHAPE = (64, 256)

EXPECTED = Expected(
    cause="each task opens all files of the film, hundreds of them, to read one",
    place="Film(pattern) in the task's function frame, or the class Film, which opens the files",
    cure="open just the one file that the task needs",
    says=r"open\w*[^.]{0,60}(files?|times|each|every|again)|files?[^.]{0,60}\bopen|(again|same)[^.]{0,60}(in|by"
    r"|for) (each|every|all)"
    r"|(each|every) (task|call)[^.]{0,80}(again|same|all)|repeated|glob|list\w* (the )?(files|folder)",
    places=(*marked(__file__), r"\bFilm\b", r"\bframe\b", r"memmap|open_memmap"),
    cures=r"(only|just|single|one|own|needed)\b[^.]{0,40}\bfile|once|outside (of )?the task|cache|keep"
    r"|in advance|pass\b|before",
    never={
        LOCK: "nobody waits for a lock of the program",
        WAITS_FOR_CORES: "fewer threads open as many files",
    },
)


def prepare() -> None:
    """Write the film."""
    for number in range(FRAMES):
        picture = np.random.default_rng(number).integers(0, 4000, SHAPE, dtype="u2")
        np.save(folder("frames_of_tadpoles") / f"frame-{number:04d}.npy", picture)


def files_of(pattern: str) -> list[str]:
    return sorted(glob(pattern))


class Film:
    """Pictures whose files match a pattern, all of the same shape."""

    def __init__(self, pattern: str) -> None:
        self.pictures = [np.load(file, mmap_mode="r") for file in files_of(pattern)]  # <- here
        shapes = {picture.shape for picture in self.pictures}
        if len(shapes) != 1:
            raise ValueError(f"pictures of several shapes: {shapes}")

    def __getitem__(self, number: int) -> np.ndarray:
        return np.array(self.pictures[number])


def frame(pattern: str, number: int) -> np.ndarray:
    return Film(pattern)[number]  # <- here


def frame_of(file: str) -> np.ndarray:
    return np.load(file)


def movement(pictures: list) -> float:
    film = da.stack([da.from_delayed(one, SHAPE, "u2") for one in pictures]).astype("f8")
    return float((film - film.mean(axis=0)).std().compute())


def bad(client: Client) -> float:
    pattern = str(folder("frames_of_tadpoles") / "frame-*.npy")
    return movement([delayed(frame)(pattern, number) for number in range(FRAMES)])


def good(client: Client) -> float:
    files = files_of(str(folder("frames_of_tadpoles") / "frame-*.npy"))
    return movement([delayed(frame_of)(file) for file in files])
