"""What genes do in the cells of embryos is a packed table in a file, of which the mean of each gene is computed.

source: scverse/anndata pull request 2033
date:   2025-07-17
seen:   a table that is read lazily with a striding of the library's own takes about 40 % longer to be read than with
        the chunks that the file has, and less still with few large chunks.
cause:  Dask's chunks do not follow those of the file: to read a narrow strip, all of the file's chunks that it touches
        are unpacked, and most of what they hold is thrown away, again for each strip.
cure:   Dask chunks along those of the file.
"""

from __future__ import annotations

import dask.array as da
import h5py
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("h5py",)
CLUSTER = TWO_BY_ONE
CELLS, GENES = scaled(32) * 1000, 1000
#: Of the file.
CHUNK = (1000, GENES)

EXPECTED = Expected(
    cause="strips of 40 genes cut across the file's chunks, so that each chunk is unpacked 25 times",
    place="from_array(..., chunks=(..., 40)) in table, or the read in Expression",
    cure="chunks that follow those of the file",
    says=r"chunks?[^.]{0,80}(file|stor|disk|HDF5)|(file|stor|disk|HDF5)[^.]{0,40}chunks?|(unpack|decompress"
    r"|read)\w*[^.]{0,60}(again|times|more)"
    r"|align|more[^.]{0,20}(read|unpacked)[^.]{0,40}(than|needed)|decompress|unpack",
    places=(*marked(__file__), r"\bExpression\b", r"__getitem__", r"\btable\b", r"\bactive\b"),
    cures=r"chunks?[^.]{0,80}(file|stor|disk|HDF5|whole|multiples?)|align|whole rows|(along"
    r"|follow)\w*[^.]{0,40}(file|chunks)|chunks\s?=|cache"
    r"|(larger|bigger)[^.]{0,20}chunks",
    never={
        MORE_WORKERS: "both cores are busy",
        LOCK: "the lock of h5py is for the threads of one process, of which there is one",
    },
)


def file_of_cells() -> str:
    return str(folder("cells_of_embryos") / "cells.h5")


def prepare() -> None:
    """Write the table, packed in chunks of a thousand cells."""
    with h5py.File(file_of_cells(), "w") as file:
        counts = file.create_dataset(
            "counts", (CELLS, GENES), "u2", chunks=CHUNK, compression="gzip", compression_opts=1
        )
        for first in range(0, CELLS, CHUNK[0]):
            counts[first : first + CHUNK[0]] = np.random.default_rng(first).poisson(0.4, CHUNK)


class Expression:
    """The table, of which a part is read when it is indexed."""

    shape, dtype, ndim = (CELLS, GENES), np.dtype("u2"), 2

    def __init__(self, path: str) -> None:
        self.path = path

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        with h5py.File(self.path, "r") as file:
            return file["counts"][index]  # <- here


def table(chunks: tuple[int, int]) -> da.Array:
    return da.from_array(Expression(file_of_cells()), chunks=chunks, meta=np.empty((0, 0), "u2"))  # <- here


def active(counts: da.Array) -> float:
    """How uneven genes are, by the deviation of their means."""
    return float(counts.astype("f8").mean(axis=0).std().compute())  # <- here


def bad(client: Client) -> float:
    return active(table((CELLS, 40)))  # <- here


def good(client: Client) -> float:
    return active(table((4 * CHUNK[0], GENES)))
