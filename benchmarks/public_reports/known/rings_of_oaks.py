"""Rings of many oaks are in one file; every second sample of each site is wanted.

source: dask/dask issue 1289
date:   2016-06-14
seen:   of an HDF5 file, a list of rows with gaps is read ten times as slowly as as many rows without gaps, although all
        are in the same chunk. With an array in memory, there is no difference.
cause:  h5py reads rows by a list as a selection of points of the file: it sets up and reads each of them by itself.
cure:   read the rows from the first to the last as a slice, and choose among them in memory.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
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
SITES = scaled(280)
SAMPLES, RINGS = 60_000, 8

EXPECTED = Expected(
    cause="h5py reads by a list of row numbers, row by row, which takes much longer than reading all of them",
    place="file['rings'][chosen] in widths",
    cure="read a slice of the file, and index the array in memory",
    says=r"(list|fancy|point|index\w*|select\w*|row[s ])[^.]{0,60}(read|h5py|HDF5|file|slow)|(read|h5py"
    r"|HDF5)\w*[^.]{0,60}(list|fancy|points|index|select|row by row|one by one|each row)"
    r"|h5py[^.]{0,40}(slow|selection|getitem)",
    places=(*marked(__file__), r"\bwidths\b", r"\bgrowth\b", r"__getitem__"),
    cures=r"slice|contiguous|in memory|(whole|all of|entire)[^.]{0,40}(read|load|chunk|array|data)"
    r"|read[^.]{0,40}(whole|all|once|at once)|NumPy array|numpy|fewer reads|larger reads",
    never={
        LONGER_TASKS: "tasks of a tenth of a second and more are long enough",
        COMPUTED_AGAIN: "everything is read once",
        MORE_MEMORY: "there is next to nothing in memory",
    },
)


def site_file(site: int) -> Path:
    return folder("rings_of_oaks") / f"site-{site:03d}.h5"


def prepare() -> None:
    """Write the rings' widths, a file for each site."""
    for site in range(SITES):
        widths = np.random.default_rng(site).gamma(3, 0.7, (SAMPLES, RINGS)).astype("f4")
        with h5py.File(site_file(site), "w") as file:
            file.create_dataset("rings", data=widths, chunks=(SAMPLES, RINGS))


def widths(path: Path, chosen: np.ndarray) -> np.ndarray:
    with h5py.File(path, "r") as file:
        return file["rings"][chosen]  # <- here


def widths_among_all(path: Path, chosen: np.ndarray) -> np.ndarray:
    with h5py.File(path, "r") as file:
        return file["rings"][chosen[0] : chosen[-1] + 1][chosen - chosen[0]]


def growth(path: Path) -> float:
    """Growth of a site's oaks in late years, compared with early ones."""
    rings = widths(path, np.arange(0, SAMPLES, 2)).astype("f8")  # <- here
    return float(rings[:, RINGS // 2 :].mean() / rings[:, : RINGS // 2].mean())


def growth_among_all(path: Path) -> float:
    rings = widths_among_all(path, np.arange(0, SAMPLES, 2)).astype("f8")
    return float(rings[:, RINGS // 2 :].mean() / rings[:, : RINGS // 2].mean())


def bad(client: Client) -> float:
    return sum(client.gather(client.map(growth, [site_file(site) for site in range(SITES)])))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(growth_among_all, [site_file(site) for site in range(SITES)])))
