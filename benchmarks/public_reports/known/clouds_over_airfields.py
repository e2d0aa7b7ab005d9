"""Clouds over airfields: pictures of an hour around some places and times, as examples to learn from.

source: openclimatefix-archives/nowcasting_dataset issue 23
date:   2021-06-21
seen:   loading examples was fast from a small data set, and eight times slower from the full one, with chunks of the
        same size; the time went to Dask, not to reading.
cause:  the array has a chunk for each time: its graph has very many entries, all of which the client goes through for
        each small selection.
cure:   larger chunks, so that the graph is small.
"""

from __future__ import annotations

import h5py
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "h5netcdf", "h5py")
CLUSTER = TWO_BY_TWO
TIMES = 24_000
SIDE = 32
STORED = 400
EXAMPLES = scaled(60)
HOUR = 12

EXPECTED = Expected(
    cause="a graph with a chunk for each time, through which the client goes for each small example",
    place="the line that opens the file in chunks of one time, or that which loads an example",
    cure="larger chunks",
    says=r"\bgraphs?\b|(client|script).{0,60}(busy|build|prepar|before|optimi[sz]|slic|cull|alone)"
    r"|(small|tiny|many|short).{0,30}(chunks?|tasks?)|chunks?.{0,40}(small|tiny|many|single|one)|overhead",
    places=(*marked(__file__), function("examples")),
    cures=r"(larger|bigger|fewer|longer).{0,40}(chunks?|graph|tasks?|blocks?)"
    r"|(chunks?|graph).{0,60}(larger|bigger|fewer|smaller|more )|rechunk|without (Dask|chunks)|chunks ?= ?None"
    r"|smaller graph|at once|one compute|together|(build|select).{0,40}in (the )?tasks?",
    never={
        MORE_WORKERS: "the workers have next to nothing to do",
        MORE_MEMORY: "there is little data",
        LOCK: "the client is busy",
        SLEEP: "nothing sleeps",
    },
)


def prepare() -> None:
    rng = np.random.default_rng(23)
    pattern = rng.integers(0, 255, (STORED, SIDE, SIDE)).astype("uint8")
    with h5py.File(folder("clouds") / "satellite.nc", "w") as file:
        clouds = file.create_dataset("clouds", (TIMES, SIDE, SIDE), "uint8", chunks=(STORED, SIDE, SIDE))
        for first in range(0, TIMES, STORED):
            clouds[first : first + STORED] = np.roll(pattern, first // STORED, axis=1)
        for name, length in (("time", TIMES), ("y", SIDE), ("x", SIDE)):
            file[name] = np.arange(length)
            file[name].make_scale(name)
        for axis, name in enumerate(("time", "y", "x")):
            clouds.dims[axis].attach_scale(file[name])


def examples(satellite: xr.Dataset) -> float:
    """Sum of the brightness of all examples."""
    rng = np.random.default_rng(5)
    total = 0.0
    for _ in range(EXAMPLES):
        start = int(rng.integers(0, TIMES - HOUR))
        row, column = (int(edge) for edge in rng.integers(0, SIDE - 16, 2))
        place = {"y": slice(row, row + 16), "x": slice(column, column + 16)}
        example = satellite["clouds"].isel(time=slice(start, start + HOUR), **place).load()  # <- here
        total += float(example.sum(dtype="float64"))
    return total


def bad(client: Client) -> float:
    path = folder("clouds") / "satellite.nc"
    with xr.open_dataset(path, engine="h5netcdf", chunks={"time": 1}) as satellite:  # <- here
        return examples(satellite)


def good(client: Client) -> float:
    path = folder("clouds") / "satellite.nc"
    with xr.open_dataset(path, engine="h5netcdf", chunks={"time": STORED}) as satellite:
        return examples(satellite)
