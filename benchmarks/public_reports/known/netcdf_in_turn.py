"""Threads of one process read compressed netCDF files, one at a time.

source: SciTools/iris issue 5553; pydata/xarray issue 2912 (its answer of 2019-09-25)
date:   2023-10-26
seen:   a script that converts files spends 99 % of its time waiting for a thread's lock in Dask, whatever the number of
        threads that NumPy may have.
cause:  HDF5 is not thread-safe: xarray has one lock for it in each process, and reading decompresses under it.
cure:   processes with one thread or two, as each has a lock of its own; or load the arrays before, or a format without
        such a lock.
"""

from __future__ import annotations

import os

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, SLEEP, TWO_BY_TWO, Expected, folder, marked, scaled

NEEDS = ("xarray", "netCDF4")
CLUSTER = {"n_workers": 1, "threads_per_worker": 4}
GOOD_CLUSTER = TWO_BY_TWO
FILES = scaled(30)
STEPS, SIDE = 24, 800

EXPECTED = Expected(
    cause="one thread of a process at a time reads: the others wait for xarray's lock of HDF5",
    place="the line that opens or computes the data, or xarray's function that reads",
    cure="processes with fewer threads each",
    says=r"(?s)(?=.*(lock|one (task|reader|thread|at)|in turn))(?=.*(netcdf|xarray|hdf5|\bread))",
    places=(*marked(__file__), r"NetCDF4ArrayWrapper|_getitem\b|open_(mf)?dataset"),
    cures=r"(?<!other )processes|more workers|fewer threads|zarr|\bload",
    never={
        SLEEP: "nobody sleeps",
        r"(?i)hold it shorter|in fewer tasks": "the lock is the library's",
        LONGER_TASKS: "larger ones wait for the same lock",
        r"(?i)use more threads": "they would wait for the same lock",
    },
)


def paths() -> list[str]:
    return [str(folder("netcdf") / f"radar-{number:03d}.nc") for number in range(FILES)]


def prepare() -> None:
    """Write one file, which is all of them."""
    first, *others = paths()
    rain = np.random.default_rng(0).gamma(0.3, 4.0, (STEPS, SIDE, SIDE)).astype("f4").round()
    dataset = xr.Dataset({"rain": (("time", "y", "x"), rain)})
    chunks = (1, SIDE, SIDE)
    dataset.to_netcdf(first, engine="netcdf4", encoding={"rain": {"zlib": True, "complevel": 1, "chunksizes": chunks}})
    for other in others:
        os.link(first, other)


def mean_rain() -> float:
    means = [
        xr.open_dataset(path, engine="netcdf4", chunks={"time": STEPS // 2})["rain"].mean()  # <- here
        for path in paths()
    ]
    return float(xr.concat(means, "file").mean().compute())  # <- here


def bad(client: Client) -> float:
    return mean_rain()


def good(client: Client) -> float:
    return mean_rain()
