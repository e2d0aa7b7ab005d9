"""Small windows of large packed microscope pictures are looked at, some in each picture.

source: dask/dask issue 5769
date:   2020-01-07
seen:   pictures in HDF5 files with chunks are opened by a delayed function that returns the array; to look up a few
        values, that is much slower than if the function returned something that reads only the chunks in question.
cause:  the delayed function reads and unpacks a whole picture, of which a small window is then cut out: the file's
        chunks are of no use.
cure:   give the window to the function that opens the file, and read only that.
"""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import h5py
import numpy as np
from dask import compute, delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("h5py",)
CLUSTER = TWO_BY_ONE
PICTURES = scaled(40)
SIDE = 4096
WINDOW = 128

EXPECTED = Expected(
    cause="each task reads and unpacks a whole picture of 32 MB, of which a small window is used",
    place="file['tissue'][:] in picture, or from_delayed() of it",
    cure="read only the window from the file",
    says=r"(whole|all of|entire|\d+ [kMG]i?B)\b[^.]{0,80}(used|needed|window|slice|part|read|thrown|kept)"
    r"|(small|little|few|part)\b[^.]{0,60}(used|needed|kept)"
    r"|more[^.]{0,20}(read|unpacked)[^.]{0,40}(than|needed)|(read|load|unpack|decompress)\w*[^.]{0,60}(more|all"
    r"|whole|entire|throw)"
    r"|decompress|unpack|reading (the )?files?",
    places=(*marked(__file__), r"\bpicture\b", r"__getitem__", r"from_delayed"),
    cures=r"only[^.]{0,60}(window|part|slice|rows|needed|read|what)|read (less|only|just)|slice[^.]{0,40}(file"
    r"|read|open|before)|from_array"
    r"|(select|cut|slice|filter)\w*[^.]{0,40}(before|while|when|in) (it )?(read|load|open)|smaller",
    never={
        LONGER_TASKS: "tasks of tenths of a second are long enough",
        COMPUTED_AGAIN: "each picture is read once",
        MORE_MEMORY: "memory is not short",
    },
)


def file_of(number: int) -> Path:
    return folder("windows_of_tissues") / f"tissue-{number:03d}.h5"


def prepare() -> None:
    """Write the pictures, packed in chunks of 256 x 256."""
    grain = np.random.default_rng(29).integers(0, 40, (SIDE, SIDE), dtype="u2")
    for number in range(PICTURES):
        with h5py.File(file_of(number), "w") as file:
            shifted = np.roll(grain, 97 * number, axis=1) + np.uint16(number)
            file.create_dataset("tissue", data=shifted, chunks=(256, 256), compression="gzip", compression_opts=1)


def picture(path: Path) -> np.ndarray:
    with h5py.File(path, "r") as file:
        return file["tissue"][:]  # <- here


def window_of(path: Path, top: int, left: int) -> float:
    with h5py.File(path, "r") as file:
        return float(file["tissue"][top : top + WINDOW, left : left + WINDOW].mean())


def corners() -> list[tuple[int, int]]:
    """Where the window of each picture is."""
    chance = np.random.default_rng(31)
    return [tuple(map(int, chance.integers(0, SIDE - WINDOW, 2))) for _ in range(PICTURES)]


def bad(client: Client) -> float:
    means = []
    for number, (top, left) in enumerate(corners()):
        tissue = da.from_delayed(delayed(picture)(file_of(number)), (SIDE, SIDE), "u2")  # <- here
        means.append(tissue[top : top + WINDOW, left : left + WINDOW].mean())
    return float(sum(compute(*means)))  # <- here


def good(client: Client) -> float:
    means = [delayed(window_of)(file_of(number), top, left) for number, (top, left) in enumerate(corners())]
    return float(sum(compute(*means)))
