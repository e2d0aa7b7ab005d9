"""Opening many netCDF files compares the coordinates of all of them.

source: pydata/xarray issue 4198 (also 1385, 1521)
date:   2020-07-05 (answer and success 2020-07-05 and 06)
seen:   opening 100 model files with open_mfdataset took hours, and the first small read many minutes, although it was
        asked for data_vars="minimal" and coords="minimal". netCDF4 by itself needs about a minute.
cause:  coordinates that all files repeat are read from every file and compared with those of the first one (the default
        compat). With a client, each comparison is a small computation of its own that the client waits for.
cure:   compat="override": take the coordinates of the first file. It opened in 15 minutes instead of 12 hours.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_TWO
FILES = scaled(45)
SIDE = 200

EXPECTED = Expected(
    cause="the client makes hundreds of small computations, one after the other, in open_mfdataset",
    place="the call of open_mfdataset",
    cure='compat="override", so that coordinates are not compared',
    says=r"one after the other|one by one|\d+ (small )?(computations|graphs)|many (small )?(computations|graphs)"
    r"|wait\w* for each|in turn|compar\w+ .*coordinates",
    places=(*marked(__file__), r"open_mfdataset"),
    cures=r"compat|override|fewer computations|at once|in one|together|coordinates",
    never={
        COMPUTED_AGAIN: "each computation is another one",
        LONGER_TASKS: "the tasks are as they are, since the client waits for each computation",
    },
)


def paths() -> list[str]:
    return [str(folder("mfdataset") / f"ocean-{i:04d}.nc") for i in range(FILES)]


def prepare() -> None:
    """Write a file for each four time steps; all have the same grid of two dimensions."""
    eta, xi = np.meshgrid(np.linspace(60, 75, SIDE), np.linspace(-10, 20, SIDE), indexing="ij")
    grid = {"lat_rho": eta, "lon_rho": xi, "depth": np.hypot(eta, xi), "angle": np.arctan2(eta, xi)}
    for i, path in enumerate(paths()):
        temperature = np.random.default_rng(i).normal(8, 2, (4, SIDE, SIDE)).astype("f4")
        xr.Dataset(
            {"temperature": (("time", "y", "x"), temperature)},
            coords={"time": np.arange(4) + 4 * i} | {name: (("y", "x"), values) for name, values in grid.items()},
        ).to_netcdf(path, engine="netcdf4")


def mean_temperature(compat: str) -> float:
    kinds = {"combine": "nested", "concat_dim": "time", "data_vars": "minimal", "coords": "minimal", "join": "outer"}
    with xr.open_mfdataset(paths(), compat=compat, chunks={}, engine="netcdf4", **kinds) as ocean:  # <- here
        return float(ocean["temperature"].mean().compute())


def bad(client: Client) -> float:
    return mean_temperature("no_conflicts")


def good(client: Client) -> float:
    return mean_temperature("override")
