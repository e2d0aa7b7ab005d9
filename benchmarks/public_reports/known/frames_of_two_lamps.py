"""Of a film of cells in an HDF5 file, every second column is of use: a bright lamp lit those between.

source: dask/dask issue 1289
date:   2016-06-14
seen:   of a Dask array on an HDF5 file, a run of elements is read ten times as fast as every second one, though both
        lie in the same chunk; with the array in memory there is no difference.
cause:  Dask passes the selection on to the file: HDF5 reads scattered elements piece by piece, many times slower than
        it reads all of a chunk.
cure:   read blocks as they lie in the file, and select in memory (map_blocks with the step).
"""

from __future__ import annotations

import dask.array as da
import h5py
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("h5py",)
CLUSTER = TWO_BY_TWO
#: Frames, pixels of a side, and frames in a chunk of the file.
FRAMES, SIDE, BLOCK, LAMPS = scaled(400) * 60, 120, 60, 2

EXPECTED = Expected(
    cause="the slice with a step goes to h5py, where HDF5 picks scattered elements from each chunk, which is much"
    " slower than to read the chunk and to take every second in memory",
    place="the line with the slices, or where the means are computed; __getitem__ of Film (h5py), tasks getter",
    cure="read whole blocks and apply the step to the NumPy array (map_blocks)",
    says=r"h5py|hdf5|__getitem__|getter|\b(strided?|step|slic\w*|selection|hyperslab|fancy|index\w*)\b"
    r"|(scattered|piecewise|single|individual|every (second|other)) (elements?|values?|frames?|reads?)"
    r"|read\w* .{0,30}(piece|part|file)",
    places=(
        *marked(__file__),
        function("Film"),
        function("__getitem__"),
        function("bad"),
        function("brightness"),
        r"getter|getitem|h5py|selections",
    ),
    cures=r"map_blocks|whole|contiguous|(in|into) memory|numpy"
    r"|(then|before|after)\b.{0,30}(slic|select|step|index|subset)"
    r"|(read|load)\b.{0,30}(all|chunks?|blocks?|at once|first)"
    r"|(without|avoid|no|not) .{0,30}(step|strid|fancy|scatter)|contiguously",
    never={
        MORE_WORKERS: "the work is needless",
        MORE_MEMORY: "there is enough",
        LONGER_TASKS: "the tasks are long enough",
        COMPUTED_AGAIN: "each block is read once",
    },
)


class Film:
    """Frames in a file, which is opened where it is read."""

    shape, dtype, ndim = (FRAMES, SIDE, SIDE), np.dtype("u1"), 3

    def __getitem__(self, where: tuple[slice, ...]) -> np.ndarray:
        with h5py.File(folder("cells") / "film.h5", "r") as file:
            return file["frames"][where]  # <- here


def prepare() -> None:
    rng = np.random.default_rng(3)
    with h5py.File(folder("cells") / "film.h5", "w") as file:
        frames = file.create_dataset("frames", Film.shape, "u1", chunks=(BLOCK, SIDE, SIDE))
        for first in range(0, FRAMES, BLOCK):
            frames[first : first + BLOCK] = rng.integers(0, 256, (BLOCK, SIDE, SIDE), "u1")


def film() -> da.Array:
    return da.from_array(Film(), chunks=(BLOCK, SIDE, SIDE), name="cells-on-film", asarray=True)


def lit_by_first(block: np.ndarray) -> np.ndarray:
    return block[:, :, ::LAMPS]


def brightness(frames: da.Array) -> float:
    return float(frames.mean(axis=(1, 2)).std().compute())  # <- here


def bad(client: Client) -> float:
    return brightness(film()[:, :, ::LAMPS])  # <- here


def good(client: Client) -> float:
    frames = film()
    chunks = (*frames.chunks[:2], tuple(chunk // LAMPS for chunk in frames.chunks[2]))
    return brightness(frames.map_blocks(lit_by_first, chunks=chunks, dtype="u1", meta=np.empty((0, 0, 0), "u1")))
