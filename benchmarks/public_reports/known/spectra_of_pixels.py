"""Tasks read the spectra of pixels, one after the other, from a compressed HDF5 file with large chunks.

source: HDFGroup/hdf-compass issue 32; of the same kind: h5py/h5py issue 1391
date:   2015-04-28 (h5py: 2019)
seen:   to look through a compressed dataset of four dimensions is very slow, though it is of moderate size; a slice of
        a hundred values is read fifty times faster than these values one by one.
cause:  chunks are larger than the cache that HDF5 has for a dataset, so none is kept: for each value
        that is read, its whole chunk is inflated again.
cure:   a larger cache when the file is opened (rdcc_nbytes), or read the block in one go and take it apart in memory.
"""

from __future__ import annotations

import h5py
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("h5py",)
CLUSTER = TWO_BY_ONE
ROWS, COLUMNS, ENERGIES = 18, scaled(16), 16_384

EXPECTED = Expected(
    cause="the same chunk of the HDF5 file is read and inflated again for every pixel, as chunks are larger than the"
    " library's cache",
    place="the line of fit_row that reads one spectrum, or the task fit_row",
    cure="a larger chunk cache (rdcc_nbytes), or read the row (the chunk) once and take spectra from memory; smaller"
    " chunks in the file",
    says=r"(read|decompress|inflat|load|open|access)\w*\b.*\b(again|\d+ times|repeated|each (pixel|spectrum|time)|every"
    r"|many (small )?(reads|pieces|times)|one (at a time|by one))|(again|\d+ times|repeated\w*|small|many)\b.*\b(read"
    r"|decompress|inflat|h5py|hdf5|file)|h5py|hdf5|decompress|inflat|chunk cache",
    places=(*marked(__file__), function("fit_row")),
    cures=r"cache|rdcc|once\b|(whole|in one|one) (row|block|chunk|read|go)|larger (read|piece|block)|at once"
    r"|fewer reads|smaller chunks|chunk|in memory|align",
    never={
        r"(?i)faster disks?": "the file is in the page cache",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "a task takes a second",
        MORE_MEMORY: "there is enough",
    },
)


def prepare() -> None:
    rng = np.random.default_rng(2)
    with h5py.File(folder("map") / "map.h5", "w") as file:
        shape, chunks = (ROWS, COLUMNS, ENERGIES), (ROWS, COLUMNS, ENERGIES)
        counts = file.create_dataset("counts", shape, "u2", chunks=chunks, compression="gzip", compression_opts=1)
        for row in range(ROWS):
            counts[row] = rng.poisson(0.4, (COLUMNS, ENERGIES))


def line_of(spectrum: np.ndarray) -> float:
    """Energy at which the smoothed spectrum is highest."""
    smooth = np.convolve(spectrum.astype("f8"), np.hanning(15), "same")
    return float(smooth.argmax() + smooth.max())


def fit_row(row: int, **options: int) -> float:
    with h5py.File(folder("map") / "map.h5", "r", **options) as file:
        counts = file["counts"]
        return sum(line_of(counts[row, column]) for column in range(COLUMNS))  # <- here


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(fit_row, range(ROWS)))))  # <- here


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(fit_row, range(ROWS), rdcc_nbytes=64 << 20))))
