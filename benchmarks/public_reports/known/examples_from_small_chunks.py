"""Examples for training are cut from a long film of a fermenting dough, a few frames each.

source: openclimatefix-archives/nowcasting_dataset issue 23
date:   2021-06-21
seen:   examples load quickly from a small dataset, and many times as slowly from a long one with chunks of the same
        size, though each example needs as little; Dask is busy with its chunks.
cause:  the dataset has a chunk for each frame; each computation of a few frames handles the graph of all of them.
cure:   larger chunks (or none: read the frames without Dask, or cut before it becomes a Dask array).
"""

from __future__ import annotations

import netCDF4
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
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
FRAMES, HEIGHT, WIDTH = scaled(40_000), 16, 16
EXAMPLES, LENGTH, LARGER = 72, 10, 500

EXPECTED = Expected(
    cause="each example is a computation, for which the client handles the graph of a dataset of tens of thousands"
    " of small"
    " chunks",
    place="the chunks of one frame in open_dataset; the line in examples that selects and computes",
    cure="larger chunks, or no chunks for a dataset from which little is read at a time; several examples in one"
    " computation",
    says=r"(small|tiny|many|thousands of|too many|\d+) (\w+ )?(chunk|task|block|piece|key)|graph"
    r"|chunk.{0,40}(small|tiny|many|one frame|size|each)"
    r"|in the client|client (is|was|spen|takes|work)|(optimi[sz]|cull|build|construct|tokeni[sz]|slic)\w*|overhead"
    r"|workers?.{0,30}(wait|idle|nothing)"
    r"|main (program|thread)|your (script|program)|(each|every|many|separate|\d+) comput",
    places=(*marked(__file__), function("examples"), function("film"), function("bad"), r"graph|client"),
    cures=r"(larger|bigger|fewer|coarser) (\w+ )?(chunk|task|piece|block|graph)|chunks?(=|\()|rechunk|smaller"
    r" graph|without (dask|chunks)|no chunks|isel|cut"
    r"|before|together|one (computation|compute|go)|dask\.compute|once\b|batch|in (the )?tasks|persist|\bload\b",
    never={
        MORE_WORKERS: "those that there are wait for the client",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        LOCK: "locks of the file are held shortly",
        SLEEP: "nothing sleeps",
    },
)


def prepare() -> None:
    with netCDF4.Dataset(folder("dough") / "film.nc", "w") as file:
        for name, size in (("frame", FRAMES), ("y", HEIGHT), ("x", WIDTH)):
            file.createDimension(name, size)
        grey = file.createVariable("grey", "f4", ("frame", "y", "x"), chunksizes=(min(LARGER, FRAMES), HEIGHT, WIDTH))
        grey[:] = np.random.default_rng(11).normal(0, 1, (FRAMES, HEIGHT, WIDTH)).astype(np.float32)


def film(frames: int) -> xr.DataArray:
    """The film, with so many frames in a chunk."""
    path = folder("dough") / "film.nc"
    return xr.open_dataset(path, engine="netcdf4", chunks={"frame": frames})["grey"]  # <- here


def examples(grey: xr.DataArray) -> float:
    """Sum of how fast things change in the examples."""
    speed = 0.0
    for first in np.random.default_rng(12).integers(0, FRAMES - LENGTH, EXAMPLES).tolist():
        example = grey.isel(frame=slice(first, first + LENGTH)).values  # <- here
        speed += float(np.abs(np.diff(example.astype(float), axis=0)).mean())
    return speed


def bad(client: Client) -> float:
    return examples(film(1))  # <- here


def good(client: Client) -> float:
    return examples(film(LARGER))
