"""A cube of satellite pictures of marshes, cleaned in bundles of pixels.

source: dask/dask issue 4011
date:   2018-09-25
seen:   pixels of a cube were cleaned by client.map, and taken as they came (as_completed). Everything froze soon after
        a fast start; with a sleep in each task, of all things, it went on.
cause:  at each result the script writes the whole cube to its file again, so that results wait for the client, and the
        workers are done long before.
cure:   write the file once, after the last result.

The cube is scattered once, so that its way to the workers is not at fault.
"""

from __future__ import annotations

import numpy as np
import xarray as xr
from distributed import Client, as_completed

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_TWO
BUNDLES = scaled(190)
DAYS, WIDTH = 60, 150

EXPECTED = Expected(
    cause="the client is busy: it writes the whole file at each result in its loop, while the workers are idle",
    place="the line of to_netcdf in the loop over results",
    cure="write once, after the loop",
    says=r"(client|script).{0,80}(busy|writ|work|slow|process|handl|in its own code|between|loop|itself|comput)"
    r"|to_netcdf|writ\w+.{0,40}(each|every|again|loop|client)|(idle|wait\w*).{0,60}(client|script)",
    places=(*marked(__file__), r"to_netcdf", function("keep")),
    cures=r"\bonce\b|after the (loop|last)|outside|out of the loop|less often|(on|in|by|to) (the )?(workers?|tasks?)"
    r"|(move|do|leave|put).{0,40}(tasks?|workers?)|only what|fewer writes",
    never={
        COMPUTED_AGAIN: "each bundle is cleaned once",
        LONGER_TASKS: "the workers are not what takes the time",
        MORE_WORKERS: "the workers have nothing to do",
    },
)


def pictures() -> np.ndarray:
    return np.random.default_rng(7).gamma(2.0, 60.0, (DAYS, BUNDLES, WIDTH))


def cleaned(bundle: int, cube: np.ndarray) -> tuple[int, np.ndarray]:
    """Series of a bundle of pixels without clouds."""
    series = cube[:, bundle].copy()
    for _ in range(12):
        median = np.median(series, axis=0)
        series = np.where(series > 3 * median, median, series)
    return bundle, series


def keep(cube: xr.DataArray) -> None:
    cube.to_netcdf(str(folder("marshes_seen_from_above") / "clean.nc"), engine="netcdf4")  # <- here


def cleaned_cube(client: Client, *, at_each: bool) -> float:
    raw = pictures()
    cube = xr.DataArray(np.zeros_like(raw), dims=("day", "y", "x"), name="brightness")
    futures = client.map(cleaned, range(BUNDLES), cube=client.scatter(raw, broadcast=True))
    for _, (bundle, series) in as_completed(futures, with_results=True):
        cube[:, bundle] = series
        if at_each:
            keep(cube)  # <- here
    keep(cube)
    return float(cube.sum())


def bad(client: Client) -> float:
    return cleaned_cube(client, at_each=True)


def good(client: Client) -> float:
    return cleaned_cube(client, at_each=False)
