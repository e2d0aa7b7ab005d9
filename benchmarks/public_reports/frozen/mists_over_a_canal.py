"""Mist over a canal, from a file of the camera for each morning.

source: pydata/xarray issue 1385
date:   2018-03-02
seen:   open_mfdataset took minutes for some hundred files, which a loop with netCDF4 opened in seconds; nothing was
        computed yet.
cause:  to combine the files, xarray reads the coordinates of each file (here in two dimensions) and compares them with
        those of the others.
cure:   say that they are the same: coords="minimal", compat="override", data_vars="minimal".
"""

from __future__ import annotations

import warnings

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
MORNINGS = scaled(110)
SIDE = 220

EXPECTED = Expected(
    cause="open_mfdataset compares the coordinates of all files, on the client, before anything is computed",
    place="the line of open_mfdataset",
    cure='compat="override", coords="minimal"',
    says=r"open_mfdataset|compar\w+|coordinates|equals|opening (the |many |all )?files|combin\w+ (of )?(the "
    r"|many )?files",
    places=(*marked(__file__), r"\bopen_mfdataset\b"),
    cures=r"override|minimal|compat|coords=|drop_variables|preprocess|join=|combine=|nested",
    never={
        MORE_WORKERS: "the workers have little to do",
        COMPUTED_AGAIN: "no field is computed twice",
    },
)


def prepare() -> None:
    import xarray as xr

    place = folder("canal")
    rng = np.random.default_rng(5)
    row, column = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    grid = {
        "lat": (("y", "x"), 51 + row + 0.1 * column**2),
        "lon": (("y", "x"), 3 + column - 0.1 * row**2),
        "height": (("y", "x"), np.hypot(row, column)),
        "angle": (("y", "x"), np.arctan2(row + 1, column)),
    }
    for morning in range(MORNINGS):
        mist = (rng.random((1, SIDE, SIDE)) < 0.3).astype("int8")
        day = np.datetime64("2022-03-01", "ns") + np.timedelta64(morning, "D")
        data = xr.Dataset({"mist": (("time", "y", "x"), mist)}, coords={"time": [day], **grid})
        data.to_netcdf(place / f"morning-{morning:03d}.nc")


def files() -> list:
    return sorted(folder("canal").glob("morning-*.nc"))


def share_of_mist(data) -> float:
    return float(data["mist"].mean("time").max().compute())


def bad(client: Client) -> float:
    import xarray as xr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with xr.open_mfdataset(files()) as data:  # <- here
            return share_of_mist(data)


def good(client: Client) -> float:
    import xarray as xr

    options = {"combine": "nested", "concat_dim": "time", "join": "override"}
    with xr.open_mfdataset(files(), coords="minimal", data_vars="minimal", compat="override", **options) as data:
        return share_of_mist(data)
