"""Anchorages on a chart: the water at each of them, as the viewers of a chart ask for it.

source: DFO-Ocean-Navigator/Ocean-Data-Map-Project pull request 789
date:   2020-11-25
seen:   a service which answers each request from one file took about twice as long to show a map as with another way of
        opening the file.
cause:  the file is opened as a chunked data set for each request, so that each little read is a computation of its own,
        with a graph, tasks and a round trip to the scheduler.
cure:   open a single file without chunks, and read the few values directly.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    MORE_MEMORY,
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
REQUESTS = scaled(150)
SIDE = 900
HOURS = 12
CHUNK = 200
VIEW = 260

EXPECTED = Expected(
    cause="each request is a tiny computation of its own: the client waits for one round trip after another",
    place="the line that loads the view, or that which opens the file",
    cure="read without Dask (no chunks), or ask for all views at once",
    says=r"round trips?|one (at a time|after (the |an)other)|in turn|in a loop|overhead|too small"
    r"|\b(\d+|many|small|short|tiny|separate)\b.{0,20}\b(computations|computes|compute calls|calls|requests|loads"
    r"|graphs|tasks)\b"
    r"|(idle|wait\w*|nothing to do)\b.{0,60}\b(client|script|submit\w*|next)|(client|script) .{0,40}between",
    places=(*marked(__file__), function("view_at"), function("waters")),
    cures=r"without (Dask|chunks)|chunks=None|open_dataset|no chunks|at once|\bonce\b|together|one (call|compute)|batch"
    r"|single (call|compute)|dask\.compute|(outside|out) of (the |a )?loop|numpy|in memory|(larger|fewer"
    r"|longer)\b.{0,20}tasks",
    never={
        MORE_WORKERS: "the workers have little to do",
        MORE_MEMORY: "a view has kilobytes",
    },
)


def prepare() -> None:
    import xarray as xr

    rng = np.random.default_rng(7)
    water = rng.normal(9, 2, (HOURS, SIDE, SIDE)).astype("float32")
    xr.Dataset({"water": (("hour", "y", "x"), water)}).to_netcdf(folder("chart") / "forecast.nc")


def requests() -> list[tuple[int, int, int]]:
    """Hour and corner of each view that somebody asks for."""
    rng = np.random.default_rng(70)
    corners = rng.integers(0, SIDE - VIEW, (REQUESTS, 2))
    return [
        (int(hour), *map(int, corner)) for hour, corner in zip(rng.integers(0, HOURS, REQUESTS), corners, strict=True)
    ]


def view_at(data, hour: int, row: int, column: int) -> np.ndarray:
    view = data["water"].isel(hour=hour, y=slice(row, row + VIEW), x=slice(column, column + VIEW))
    return view.values  # <- here


def waters(open_chart) -> float:
    """The warmest water of each view, on average."""
    warmest = []
    for hour, row, column in requests():
        with open_chart() as data:
            warmest.append(view_at(data, hour, row, column).max())  # <- here
    return float(np.mean(warmest))


def bad(client: Client) -> float:
    import xarray as xr

    path = folder("chart") / "forecast.nc"
    return waters(lambda: xr.open_mfdataset([path], chunks={"y": CHUNK, "x": CHUNK}))  # <- here


def good(client: Client) -> float:
    import xarray as xr

    return waters(lambda: xr.open_dataset(folder("chart") / "forecast.nc"))
