"""Nights of frost in a year, from one file with the warmth of each day.

source: github.com/Ouranosinc/pavics-sdi, notebook on large climate data with Dask and xarray
date:   2026-12-01 (seen; its own is not given)
seen:   an index of a climate took much longer and more memory with some chunks than with others of the same size.
cause:  the chunks of the Dask array cut across those in the file: to read one, many compressed chunks of the file are
        unpacked, of which a small part is used, and the same ones again for the next.
cure:   open the file with chunks that are (multiples of) those in the file.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_TWO, Expected, folder, marked, scaled

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_TWO
DAYS = 366
SIDE = scaled(8) * 50
ON_DISK = {"time": DAYS, "lat": 50, "lon": 50}
WEEKS = 2

EXPECTED = Expected(
    cause="chunks across those of the file: each compressed chunk of the file is unpacked for each of them again",
    place="the line that opens the file with chunks, or that which computes",
    cure="chunks aligned with those in the file",
    says=r"(chunks?|blocks?) (in|of|on) (the )?(file|disk)|on[- ]disk|stor\w* chunks?|align\w*|cut\w* across"
    r"|decompress\w*|unpack\w*"
    r"|(read|unpack)\w* (more than once|again|several times|many times)|chunksizes|preferred_chunks|inflat\w*",
    places=(*marked(__file__),),
    cures=r"align\w*|multiples?|match\w*|chunks=\{\}|chunks? (of|in|on|as) (the )?(file|disk)|same chunks|preferred"
    r"|rechunk"
    r"|(whole|as stored)|chunks=|open\w* .{0,40}chunks",
    never={
        LONGER_TASKS: "the chunks have megabytes",
        MORE_WORKERS: "they would unpack as much",
    },
)


def prepare() -> None:
    import xarray as xr

    rng = np.random.default_rng(12)
    season = 8 - 12 * np.cos(2 * np.pi * np.arange(DAYS) / DAYS)
    north = np.linspace(0, 6, SIDE)
    noise = rng.normal(0, 4, (DAYS, SIDE, SIDE))
    warmth = np.round(season[:, None, None] - north[:, None] + noise).astype("float32")
    data = xr.Dataset({"warmth": (("time", "lat", "lon"), warmth)})
    encoding = {"zlib": True, "complevel": 4, "chunksizes": tuple(ON_DISK.values())}
    data.to_netcdf(folder("frost") / "year.nc", encoding={"warmth": encoding})


def nights(warmth) -> float:
    frost = (warmth < 0).sum("time")
    return float(frost.max().compute() + frost.mean().compute())  # <- here


def bad(client: Client) -> float:
    import xarray as xr

    with xr.open_dataset(folder("frost") / "year.nc", chunks={"time": 7 * WEEKS}) as data:  # <- here
        return nights(data["warmth"])


def good(client: Client) -> float:
    import xarray as xr

    with xr.open_dataset(folder("frost") / "year.nc", chunks=ON_DISK) as data:
        return nights(data["warmth"])
