"""Results are written to netCDF files with the highest level of compression.

source: FZJ-IEK3-VSA/FINE issue 120; of the same kind: a comment of 2023-09-12 in pydata/xarray issue 2799, and
        neishm/fstd2nc issue 95
date:   2025-09-18 (the others 2023-09-12 and 2024-10-21)
seen:   saving takes most of the time of a job, twice to ten times as long as it could.
cause:  zlib at level 9 looks very long for repetitions; the files become a few per cent smaller than at level 1.
cure:   level 1 (or none, or a quicker codec).
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_ONE
YEARS = scaled(12)
SHAPE = (48, 200, 240)

EXPECTED = Expected(
    cause="nearly all of the tasks' time is spent in to_netcdf, compressing (zlib, level 9)",
    place="the to_netcdf() in save()",
    cure="a lower level of compression (complevel=1), none, or another codec (zstd, blosc)",
    says=r"compress|zlib|gzip|deflate|complevel|to_netcdf|netcdf|writ(e|es|ing)\b|\bsav(e|ing) (the|to|file)|encod",
    places=(*marked(__file__), function("save"), function("to_netcdf"), r"netCDF4"),
    cures=r"complevel|(lower|lowest|weaker|less|no|without|lighter|faster|quicker|cheaper|other"
    r"|another)\b.{0,30}(compress|level|codec)"
    r"|level.{0,10}1\b|zstd|blosc|lz4|uncompressed|codec|zarr",
    never={
        MORE_WORKERS: "the cores are busy",
        LONGER_TASKS: "a task takes a second",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each year is computed once",
        r"(?i)slow disk|disk is slow|faster disk|[Ww]aiting for the disk\W+saves": "it is CPU time",
    },
)


def flows(year: int) -> xr.Dataset:
    """Amounts of a year, as a model makes them: rounded and smooth, with noise in the last digits."""
    rng = np.random.default_rng(year)
    steps, rows, columns = SHAPE
    wave = np.sin(np.linspace(0, 9 + year, steps))[:, None, None] * np.linspace(1, 2, columns)
    amounts = np.round(wave * 100 + rng.integers(0, 6, (steps, rows, columns)) * 0.5, 1)
    return xr.Dataset({"amount": (("step", "row", "column"), amounts)})


def save(year: int, level: int) -> float:
    results = flows(year)
    path = folder("flows") / f"{year}-{level}.nc"
    results.to_netcdf(path, encoding={"amount": {"zlib": True, "complevel": level}})  # <- here
    return float(results["amount"].std())


def bad(client: Client) -> float:
    return sum(client.gather(client.map(save, range(YEARS), level=9)))


def good(client: Client) -> float:
    return sum(client.gather(client.map(save, range(YEARS), level=1)))
