"""Daily fields of a land model, a file for each day, are put into one file.

source: pydata/xarray issue 2912
date:   2019-04-21
seen:   writing a dataset of 500 time steps with some variables to netCDF takes very long, though it has just some
        hundred megabytes. Loaded first, it is written in a moment.
cause:  the dataset is a chunk for each time step and variable, and each chunk is written by a task of its own, which
        opens the file, waits for the lock that all writers share, and closes the file again.
cure:   load() the dataset first, as it fits into memory, and write it at once.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_ONE
DAYS = scaled(150)
VARIABLES = ("streamflow", "depth", "velocity", "flooded")

EXPECTED = Expected(
    cause="many small chunks are written one after the other: each opens the file, waiting for a lock",
    place="the to_netcdf() of the chunked dataset",
    cure="load() first, then write; or write larger chunks",
    says=r"\block\w*|one (after the other|at a time|by one)|in turn|(small|many|tiny) (chunks|writes|tasks|pieces)"
    r"|tasks? (are|were) (too )?(small|short)|writ(es|ing|ten) .{0,40}(file|netCDF)|too many tasks"
    r"|open(s|ed|ing)? .{0,20}(file|times|again)",
    places=(*marked(__file__), r"\bto_netcdf\b|store_chunk|\bstore\b|load_store"),
    cures=r"load"
    r"|(larger|bigger|fewer|longer) (and (larger|bigger|fewer|longer) )?(chunks|writes|tasks|pieces|partitions)"
    r"|fewer, (larger|longer)|rechunk|chunks? (larger|bigger)|before writing|at once|file (for|per) each"
    r"|several files"
    r"|own file|files? of (its|their) own|zarr|in memory|hold (it|the lock) (shorter|less)",
    never={
        COMPUTED_AGAIN: "all is computed once",
        HOLDS_GIL: "tasks wait for the file",
        MORE_WORKERS: "more of them would wait for the same lock",
        MORE_MEMORY: "there is enough",
    },
)


def path_of(day: int) -> str:
    return str(folder("streams_in_one_file") / f"land-{day:04d}.nc")


def prepare() -> None:
    for day in range(DAYS):
        generator = np.random.default_rng(day)
        fields = {name: (("time", "y", "x"), generator.random((1, 59, 75)).astype("f4")) for name in VARIABLES}
        xr.Dataset(fields, coords={"time": [day]}).to_netcdf(path_of(day), engine="netcdf4")


def all_days() -> xr.Dataset:
    paths = [path_of(day) for day in range(DAYS)]
    kinds = {"combine": "nested", "concat_dim": "time", "compat": "override", "coords": "minimal", "join": "override"}
    return xr.open_mfdataset(paths, engine="netcdf4", chunks={}, data_vars="minimal", **kinds)


def mean_of(path: str) -> float:
    with xr.open_dataset(path, engine="netcdf4") as written:
        return float(sum(written[name].mean() for name in VARIABLES))


def bad(client: Client) -> float:
    target = str(folder("streams_in_one_file") / "all.nc")
    with all_days() as land:
        land.to_netcdf(target, engine="netcdf4")  # <- here
    return mean_of(target)


def good(client: Client) -> float:
    target = str(folder("streams_in_one_file") / "all-at-once.nc")
    with all_days() as land:
        land.load().to_netcdf(target, engine="netcdf4")
    return mean_of(target)
