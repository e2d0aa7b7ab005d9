"""Methane that a peat bog gives off, hour by hour, from daily fields.

source: dask/dask issue 11453
date:   2024-11-06
seen:   since a new release of Dask, a program which takes a daily series to an hourly one ran six times as long.
cause:  the chunks of the daily array are tiny, and those of the hourly one stay as small: there are 24 times as many of
        them, each of which costs more to administer than to compute.
cure:   larger chunks from the start, of 100 MiB or what ``"auto"`` gives.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_TWO
DAYS = scaled(150)
SIDE = 40
PER_CHUNK = 2

EXPECTED = Expected(
    cause="the chunks are tiny, so that there are thousands of tasks of a millisecond each",
    place="the line that opens the file with its chunks, that of the hourly selection, or that which computes",
    cure="larger chunks",
    says=r"(small|short|tiny|brief|many|thousands of)\b.{0,40}\b(tasks?|chunks?)|(tasks?|chunks?)\b.{0,30}\b(small"
    r"|short"
    r"|tiny|too many)|overhead|scheduler.{0,40}(busy|limit|bottleneck)|\bgraphs?\b.{0,40}(large|big|many tasks)",
    places=(*marked(__file__),),
    cures=r"(larger|bigger|fewer|coarser|longer)\b.{0,30}(chunks?|tasks?|blocks?)|rechunk|\.chunk\(|chunks=",
    never={
        COMPUTED_AGAIN: "each hour is computed once",
        MORE_WORKERS: "more of them would have as little to do",
    },
)


def prepare() -> None:
    import xarray as xr

    path = folder("bogs") / "daily.nc"
    rng = np.random.default_rng(11)
    flux = rng.gamma(2.0, 3.0, (DAYS, SIDE, SIDE)).astype("float32")
    days = np.datetime64("2021-01-01") + np.arange(DAYS)
    data = xr.Dataset({"flux": (("time", "y", "x"), flux)}, coords={"time": days.astype("datetime64[ns]")})
    data.to_netcdf(path, encoding={"flux": {"chunksizes": (PER_CHUNK, SIDE, SIDE)}})


def hours_of(days: np.ndarray) -> np.ndarray:
    """All hours from the first day to the end of the last."""
    return np.arange(days[0], days[-1] + np.timedelta64(1, "D"), np.timedelta64(1, "h"))


def hourly(flux):
    """Daily fluxes with a course of the day, which sums to that of the day."""
    import xarray as xr

    hours = hours_of(flux["time"].values)
    clock = (hours - hours.astype("datetime64[D]")) / np.timedelta64(1, "h")
    course = xr.DataArray((1 + 0.6 * np.sin(2 * np.pi * (clock - 8) / 24)).astype("float32"), dims="time")
    spread = flux.sel(time=hours, method="ffill")  # <- here
    return spread.drop_vars("time") * course / 24


def strongest_hours(path, chunks) -> float:
    import xarray as xr

    with xr.open_dataset(path, chunks=chunks) as data:  # <- here
        values = hourly(data["flux"])
        peak = np.sqrt(values).max(("y", "x"))
        return float(peak.mean().compute())  # <- here


def bad(client: Client) -> float:
    return strongest_hours(folder("bogs") / "daily.nc", {})  # <- here


def good(client: Client) -> float:
    return strongest_hours(folder("bogs") / "daily.nc", {"time": 100})
