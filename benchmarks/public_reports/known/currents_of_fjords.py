"""The log files of moorings in fjords are opened as one data set, to have the mean salinity.

source: pydata/xarray issue 1301
date:   2017-03-07
seen:   opening three files of sensor data, 1.2 GB in all, as one data set went from less than a second to almost a
        minute with a new version; most of that time is spent in reading values of the files, although no values were
        asked for.
cause:  each file brings many variables that are coordinates but no index. To put the files together, those of all files
        are read and compared; with a client, by one small computation after the other.
cure:   drop the coordinates that nobody needs in ``preprocess``, before the files are put together.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_TWO
LOGS = scaled(40)
DEPTHS, STATIONS = 40, 60
NAMES = ("latitude", "longitude", "bottom", "slope", "roughness", "shore", "sill", "shade")

EXPECTED = Expected(
    cause="the client reads and compares the coordinates of all files, in hundreds of small computations in turn",
    place="the call of open_mfdataset",
    cure="drop the coordinates in preprocess, or take them from the first file (compat='override')",
    says=r"compar\w+[^.]{0,40}coordinates|coordinates[^.]{0,60}compar|\d+ (small )?(computations|computes|graphs)"
    r"|(many|hundreds of) (small )?(computations|computes|graphs)|one (after the other|by one|at a time)|in turn"
    r"|client waits? for (each|every)",
    places=(*marked(__file__), r"open_mfdataset", r"\bmean_salinity\b"),
    cures=r"preprocess|drop[^.]{0,30}coord|compat|override|coords=|join=|fewer computations|at once|in one"
    r"|together",
    never={
        COMPUTED_AGAIN: "each computation is another one",
        LONGER_TASKS: "the size of tasks is not at fault: the client waits for each computation",
        MORE_WORKERS: "workers are idle nearly all the time",
    },
)


def logs() -> list[str]:
    return [str(folder("currents_of_fjords") / f"mooring-{i:03d}.nc") for i in range(LOGS)]


def prepare() -> None:
    """Write the logs: six time steps each, on the same grid of depths and stations."""
    shared = {
        name: (("depth", "station"), np.random.default_rng(number).random((DEPTHS, STATIONS)))
        for number, name in enumerate(NAMES)
    }
    for i, path in enumerate(logs()):
        salinity = np.random.default_rng(100 + i).normal(31, 2, (6, DEPTHS, STATIONS)).astype("f4")
        xr.Dataset(
            {"salinity": (("time", "depth", "station"), salinity)},
            coords={"time": np.arange(6) + 6 * i} | shared,
        ).to_netcdf(path, engine="netcdf4")


def only_salinity(log: xr.Dataset) -> xr.Dataset:
    return log.reset_coords(drop=True)


def mean_salinity(**more: object) -> float:
    kinds = {"combine": "nested", "concat_dim": "time", "join": "outer", "compat": "no_conflicts"}
    with xr.open_mfdataset(logs(), engine="netcdf4", chunks={}, **kinds, **more) as water:  # <- here
        return float(water["salinity"].mean().compute())


def bad(client: Client) -> float:
    return mean_salinity(data_vars="minimal", coords="different")


def good(client: Client) -> float:
    return mean_salinity(data_vars="minimal", coords="different", preprocess=only_salinity)
