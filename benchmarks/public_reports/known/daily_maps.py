"""Daily maps in a compressed netCDF file are opened in small tiles and averaged.

source: pydata/xarray issue 8490
date:   2023-11-29 (explained 2023-11-30)
seen:   after an update of xarray, loading a month of daily netCDF files took 161 s instead of 20 s (it showed first as
        a slow copy to zarr). The dataset was now cut into tiles of 36 x 72, which had been one piece of 361 x 576 per
        time step before.
cause:  in the file a whole map (361 x 576) is one compressed storage chunk, so each of the 88 tiles of a map reads and
        unpacks the whole map and throws away the rest.
cure:   open the files with chunks that are those of the storage or multiples of them (here one time step, the map
        whole), and only then go on.

HDF5's own cache (1 MB) is smaller than one map, so nothing is kept between tiles.
"""

from __future__ import annotations

import warnings

import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import HOLDS_GIL, PROCESSES, TWO_BY_ONE, Expected, folder, marked, scaled

NEEDS = ("xarray", "h5netcdf", "h5py")
CLUSTER = TWO_BY_ONE
DAYS = scaled(24)
LAT, LON = 720, 1440

EXPECTED = Expected(
    cause="the Dask chunks are much smaller than the compressed storage chunks of the file and lie across them, so"
    " every"
    " read task unpacks a whole map to keep a small tile of it: the same data is decompressed dozens of times",
    place="the chunks= of xr.open_dataset in bad(): {'time': 1, 'lat': 180, 'lon': 240} against stored chunks of"
    " (1, 720, 1440); in tasks: the reading (open_dataset / getter tasks), not the mean",
    cure="open with chunks equal to (or multiples of) the stored chunks, e.g. chunks={'time': 1} or chunks={}; or store"
    " the file in the chunks in which it is read",
    says=r"(stor(ed|age)|file('?s|s)?|netcdf|hdf5?|on[- ]disk|its own|native) chunk"
    r"|chunks? (of|in|on) (the )?(file|storage|disk)"
    r"|compress|unpack|inflat|zlib|(read|load|open)\w*\b.{0,40}(again|repeated|several|many times|more than once|dozens"
    r"|\d+ times|whole)|re-?read|again|repeated|(mis)?align|across|smaller than .{0,40}(stor|file|disk)|read more than",
    places=(*marked(__file__), r"open_dataset|getter"),
    cures=r"(stor(ed|age)|file('?s)?|disk|native|same|equal|match|multiples?|align|whole)\b.{0,60}\bchunk"
    r"|chunk.{0,80}\b(stor|file|equal|match|multiple|align|larger|bigger|whole|same|auto|disk|native)"
    r"|(larger|bigger|fewer) (and larger |and bigger )?(chunks|pieces|blocks|tiles)|rewrite|chunks ?= ?(\{|None)"
    r"|without chunks|zarr",
    never={
        r"(?i)scheduler('s)? overhead|tasks are too (small|short)": "their time is spent in unpacking",
        r"(?i)disk is slow|slow disk|faster disk": "the file is in the page cache: it is CPU time",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        r"(?im)(^|[.:;])\s*persist\b": "each tile is used once",
        r"(?im)(^|[.:;])\s*rechunk\b(?! the file)": "the tiles are read first",
    },
)


def prepare() -> None:
    rng = np.random.default_rng(3)
    ground = rng.normal(280.0, 15.0, (LAT, LON))
    maps = np.stack([np.round(ground + rng.normal(0.0, 2.0, (LAT, LON)), 1) for _ in range(DAYS)])
    data = xr.Dataset(
        {"t2m": (("time", "lat", "lon"), maps.astype("float32"))},
        coords={"time": np.arange(DAYS), "lat": np.linspace(-90, 90, LAT), "lon": np.linspace(0, 359, LON)},
    )
    encoding = {"t2m": {"zlib": True, "complevel": 4, "chunksizes": (1, LAT, LON)}}
    data.to_netcdf(folder("maps") / "maps.nc", engine="h5netcdf", encoding=encoding)


def warmest(chunks: dict[str, int]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = xr.open_dataset(folder("maps") / "maps.nc", engine="h5netcdf", chunks=chunks)  # <- here
    with data:
        return float(data["t2m"].mean("time").max().compute())


def bad(client: Client) -> float:
    return warmest({"time": 1, "lat": 180, "lon": 240})  # <- here


def good(client: Client) -> float:
    return warmest({"time": 1})
