"""Mean concentrations of sediment over ripples in each burst of an acoustic profiler.

source: pydata/xarray issue 912
date:   2016-07-20
seen:   means over depth and duration of an array of 7 GB, chunked by a few bursts, were set up at once, but to load
        the short vector of results took insanely long.
cause:  bursts are the last dimension of the file, so each chunk of a few bursts consists of very many pieces of a few
        values which are scattered over all of the file: each task goes through the whole file.
cure:   chunk along the first dimension of the file, so that a chunk is read in one piece.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_MEMORY,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_TWO
DURATION = scaled(700)
DEPTHS = 80
BURSTS = 1200

EXPECTED = Expected(
    cause="chunks go across the order in which the file is stored: each of them is read in tiny pieces from everywhere",
    place="the line that chunks by burst, or that loads",
    cure="chunks along the first dimension, as the file is stored",
    says=r"chunk.{0,80}(stored|storage|on disk|\bfiles?\b|layout|contiguous)|(stored|storage|on disk"
    r"|layout).{0,80}chunk"
    r"|(small|tiny|scattered|strided) (pieces|reads)|read.{0,60}(whole file|many times|again|more than|over and over)"
    r"|along the (first|wrong|last)",
    places=(*marked(__file__),),
    cures=r"chunk|along|contiguous|as (it is|they are|the file is) stored|order|rechunk|duration",
    never={
        COMPUTED_AGAIN: "each chunk is used once, and the array is larger than what one wants in memory",
        MORE_MEMORY: "memory is plenty",
        HOLDS_GIL: "the time is in reading",
    },
)


def prepare() -> None:
    random = np.random.default_rng(8)
    concentration = random.random((DURATION, DEPTHS, BURSTS), dtype=np.float32)
    profiles = xr.Dataset(
        {"concentration": (("duration", "depth", "burst"), concentration)},
        coords={"depth": np.linspace(0.01, 1.2, DEPTHS), "burst": np.arange(BURSTS)},
    )
    profiles.to_netcdf(folder("ripples") / "profiles.nc", engine="netcdf4")


def bad(client: Client) -> float:
    with xr.open_dataset(folder("ripples") / "profiles.nc", engine="netcdf4") as profiles:
        concentration = profiles["concentration"].chunk({"burst": 2})  # <- here
        means = concentration.mean(("depth", "duration")).load()  # <- here
    return float(means.sum())


def good(client: Client) -> float:
    with xr.open_dataset(folder("ripples") / "profiles.nc", engine="netcdf4") as profiles:
        concentration = profiles["concentration"].chunk({"duration": 40})
        means = concentration.mean(("depth", "duration")).load()
    return float(means.sum())
