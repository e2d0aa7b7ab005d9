"""Scans of a radar for insects, one chunk each, are written to one file.

source: pydata/xarray issue 2242
date:   2018-06-21
seen:   writing a dataset with to_netcdf takes several times as long when it is delayed; on a shared file system much
        more.
cause:  each chunk is written by a task, which takes the file's lock, opens the file, writes a little, and closes it:
        with hundreds of small chunks, opening and closing is most of it, and one at a time.
cure:   fewer and larger chunks for writing (rechunk), or load first what fits.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "netCDF4")
CLUSTER = TWO_BY_ONE
SCANS, RAYS, GATES, TOGETHER = scaled(1_000), 90, 120, 100

EXPECTED = Expected(
    cause="each of a thousand small chunks is written by itself, with the lock of the file, which is opened and"
    " closed each"
    " time",
    place="the line with to_netcdf in written",
    cure="rechunk to larger chunks before writing, or load first",
    says=r"to_netcdf|netcdf|\bwrit\w+|(open|clos)\w*.{0,30}(file|again|each|every|times)|lock|(small|tiny|many"
    r"|short|\d+) (\w+ )?(chunk|task|write|piece|block)"
    r"|one (at a time|after)|in turn|\bstore\b|overhead|serial",
    places=(*marked(__file__), function("written"), function("bad"), r"netcdf|\bstore|lock"),
    cures=r"rechunk|(larger|bigger|fewer|longer|coarser) (\w+ )?(chunk|task|piece|block|write)|\bload\b|compute"
    r"|chunks?=|combine|together|zarr"
    r"|(several|many|separate|own) (\w+ )?(file|chunk)|file (for|per) each|save_mfdataset|batch|keep .{0,20}open"
    r"|group",
    never={
        MORE_WORKERS: "there is only one file, with one lock",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        COMPUTED_AGAIN: "each scan is computed once",
        SLEEP: "nothing sleeps",
    },
)


def scan(block_info: dict | None = None) -> np.ndarray:
    assert block_info is not None
    info = block_info[None]
    first = info["array-location"][0][0]
    numbers = np.arange(first, first + info["chunk-shape"][0])
    angles = np.linspace(0, 6, RAYS * GATES).reshape(RAYS, GATES)
    return np.sin(angles + numbers[:, None, None] / 10).astype(np.float32)


def scans() -> xr.Dataset:
    chunks = ((1,) * SCANS, (RAYS,), (GATES,))
    data = da.map_blocks(scan, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0, 0), np.float32))
    return xr.Dataset({"echo": (("scan", "ray", "gate"), data)})


def written(dataset: xr.Dataset, name: str) -> float:
    """Sum of what has been written, absolute."""
    path = folder("radar") / name
    dataset.to_netcdf(path, engine="netcdf4", compute=False).compute()  # <- here
    with xr.open_dataset(path, engine="netcdf4") as again:
        return float(np.abs(again["echo"].values.astype(float)).sum())


def bad(client: Client) -> float:
    return written(scans(), "single.nc")  # <- here


def good(client: Client) -> float:
    return written(scans().chunk(scan=TOGETHER), "together.nc")
