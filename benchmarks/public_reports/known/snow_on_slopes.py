"""The depth of snow on many slopes is read from a file, to have how much snow there was in all.

source: pydata/xarray issue 6036
date:   2021-12-01
seen:   opening an array whose chunks are very small takes minutes and much memory, before anything was read, since Dask
        makes a task of each chunk of the store.
cause:  the file was written with tiny chunks (here 2 x 25 x 25 values), and Dask's chunks are those of the file: there
        are thousands of tasks, and handling one takes much longer than what it does.
cure:   Dask chunks that hold many of the file's (``chunks={"day": ...}``), or to write the file with larger ones.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_TWO
DAYS = scaled(60)
SIDE = 300

EXPECTED = Expected(
    cause="thousands of tasks that are too small: the chunks are those of the file, of 10 kB each",
    place="the call of open_dataset with chunks={}, or what is computed of it",
    cure="larger chunks: several of the file's in one",
    says=r"(tasks?|chunks?)[^.]{0,40}(too )?(small|short|tiny)|(small|short|tiny)[^.]{0,20}(tasks?|chunks?)"
    r"|too many tasks"
    r"|[\d,]+ tasks[^.]{0,80}(overhead|scheduler)|overhead[^.]{0,40}task",
    places=(*marked(__file__), r"open_dataset", r"\bmelted\b"),
    cures=r"(larger|bigger|longer|fewer)[^.]{0,30}(chunks?|tasks?|blocks?)|(chunks?|blocks?)[^.]{0,20}(larger"
    r"|bigger)"
    r"|rechunk|chunks\s?=|more work (in|per) (a|each) task|merge",
    never={
        MORE_WORKERS: "the scheduler has more to do than workers",
        MORE_MEMORY: "there is next to nothing in memory",
    },
)


def survey() -> str:
    return str(folder("snow_on_slopes") / "survey.nc")


def prepare() -> None:
    """Write the survey as the instrument does: two days and one small square at a time."""
    depth = np.random.default_rng(7).gamma(2, 0.4, (DAYS, SIDE, SIDE)).astype("f4")
    xr.Dataset({"depth": (("day", "y", "x"), depth)}).to_netcdf(
        survey(), engine="netcdf4", encoding={"depth": {"chunksizes": (2, 25, 25)}}
    )


def melted(depth: xr.DataArray) -> float:
    """Water in snow that is deep enough, in all."""
    water = depth.where(depth > 0.2, 0) * 0.3
    return float(water.astype("f8").sum().compute())  # <- here


def bad(client: Client) -> float:
    with xr.open_dataset(survey(), engine="netcdf4", chunks={}) as snow:  # <- here
        return melted(snow["depth"])


def good(client: Client) -> float:
    with xr.open_dataset(survey(), engine="netcdf4", chunks={"day": 10, "y": -1, "x": -1}) as snow:
        return melted(snow["depth"])
