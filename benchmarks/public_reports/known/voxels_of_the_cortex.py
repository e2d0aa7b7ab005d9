"""Mean responses of chosen voxels of a brain, from a file for each subject.

source: pydata/xarray issue 6413
date:   2022-03-26
seen:   an array of 27,000 x 300,000 in a netCDF file was indexed by a mask of the second dimension and then loaded;
        that did not end. To load all of it and to index then is faster.
cause:  indexing is lazy, so the file is read for just the chosen columns: each run of neighbours is a request of its
        own to HDF5, thousands of them for a scattered mask.
cure:   load first, and index in memory.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_ONE
SUBJECTS = scaled(4)
TRIALS = 150
VOXELS = 20_000

EXPECTED = Expected(
    cause="the file is read in thousands of small pieces, as scattered columns are chosen before loading",
    place="the load() of the chosen voxels",
    cure="load all of the array first, and choose in memory",
    says=r"(many|small|tiny|thousands of|scattered|\d+) .{0,20}(reads|pieces|requests|read)"
    r"|read\w* .{0,60}(pieces|small|one by one|column|element)"
    r"|fancy|index\w*|reading (the )?(files?|data)"
    r"|time (is |goes |went )?(spent )?(in |into |on )?(reading|netCDF|HDF5|I/O|input)"
    r"|\bload\w* .{0,40}(chosen|columns|small|pieces|first|scattered)",
    places=(*marked(__file__), function("mean_response"), r"_getitem|netCDF4_|getitem|\bload\b"),
    cures=r"load .{0,60}(first|before|whole|all|once|then)|whole|at once|in one|before (index|choos|select)"
    r"|slice|contiguous"
    r"|larger (reads|pieces)|fewer (reads|requests)|in memory",
    never={
        LONGER_TASKS: "tasks take about a second",
        COMPUTED_AGAIN: "each file is read once",
        MORE_MEMORY: "an array has 12 MB",
        r"(?i)compress": "the files are not compressed",
    },
)


def path_of(subject: int) -> str:
    return str(folder("voxels_of_the_cortex") / f"subject-{subject:02d}.nc")


def chosen() -> np.ndarray:
    """Mask of the reliable voxels."""
    return np.random.default_rng(1).random(VOXELS) < 0.3


def prepare() -> None:
    for subject in range(SUBJECTS):
        responses = np.random.default_rng(100 + subject).normal(size=(TRIALS, VOXELS)).astype("f4")
        xr.Dataset({"responses": (("trial", "voxel"), responses)}).to_netcdf(path_of(subject), engine="netcdf4")


def mean_response(subject: int, mask: np.ndarray) -> float:
    with xr.open_dataset(path_of(subject), engine="netcdf4") as brain:
        responses = brain["responses"].isel(voxel=mask)  # <- here
        return float(np.abs(responses.load()).mean())  # <- here


def mean_response_in_memory(subject: int, mask: np.ndarray) -> float:
    with xr.open_dataset(path_of(subject), engine="netcdf4") as brain:
        return float(np.abs(brain["responses"].load().isel(voxel=mask)).mean())


def bad(client: Client) -> float:
    return sum(client.gather(client.map(mean_response, range(SUBJECTS), mask=chosen())))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(mean_response_in_memory, range(SUBJECTS), mask=chosen())))
