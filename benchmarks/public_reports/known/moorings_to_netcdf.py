"""Records of moorings are written to netCDF files without an end in time, and read again as a whole.

source: SciTools/iris issue 3357
date:   2019-07-12
seen:   a file of five thousand times and fifty depths takes seven seconds to read if its time is an unlimited
        dimension, and hundredths of a second if it is a fixed one; hundreds of such files have to be read.
cause:  along an unlimited dimension the library's own choice is chunks of one time each; a file has tens of thousands
        of chunks of a few hundred bytes, each of which is looked up, read and inflated by itself.
cure:   give the variable chunk sizes that hold many times (or fix the dimension) when the files are written.
"""

from __future__ import annotations

import netCDF4
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("netCDF4",)
CLUSTER = TWO_BY_ONE
MOORINGS, TIMES, DEPTHS = 12, scaled(10_000), 60

EXPECTED = Expected(
    cause="the netCDF files are stored in tiny chunks (one time each), as their time is an unlimited dimension; to"
    " write and to read them is slow for the number of chunks, not for the bytes",
    place="the variable made in write_record (its dimension without end and its missing chunk sizes), and the lines"
    " that write and read it (write_record, stratification)",
    cure="chunk sizes with many times for the variable, or a time dimension of fixed length",
    says=r"chunk|unlimited|record dimension|(tiny|small|many)\b.{0,40}\b(pieces?|reads?|writes?|blocks?)"
    r"|(one|single|each|every) (time|record|step|row)\w*\b.{0,30}\b(by itself|at a time|alone|separate)",
    places=(*marked(__file__), function("write_record"), function("stratification")),
    cures=r"chunk|unlimited|fix(ed)?\b.{0,30}(dimension|length|size)|contiguous|contig|larger (pieces|blocks|reads)"
    r"|many (times|records|rows)",
    never={
        r"(?i)faster disks?": "the files are small and in the page cache",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "a task takes a second",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "there is enough",
    },
)


def salinity(mooring: int) -> np.ndarray:
    rng = np.random.default_rng(mooring)
    swell = rng.normal(0, 0.02, TIMES).cumsum()[:, None]
    values = 34 + swell * np.sin(np.linspace(0, 3, DEPTHS)) + np.linspace(0, 1, DEPTHS)
    return values.round(2).astype("f4")


def write_record(mooring: int, times_per_chunk: int | None) -> str:
    place = str(folder("moorings") / f"mooring-{mooring}-{times_per_chunk}.nc")
    with netCDF4.Dataset(place, "w") as file:
        file.createDimension("time", None)  # <- here
        file.createDimension("depth", DEPTHS)
        chunks = times_per_chunk and (times_per_chunk, DEPTHS)
        shape = ("time", "depth")
        variable = file.createVariable("salinity", "f4", shape, zlib=True, complevel=1, chunksizes=chunks)  # <- here
        variable[:] = salinity(mooring)  # <- here
    return place


def stratification(place: str) -> float:
    with netCDF4.Dataset(place) as file:
        profile = np.asarray(file["salinity"][:])  # <- here
    return float(np.diff(profile, axis=1).clip(0).mean(dtype="f8"))


def season(client: Client, times_per_chunk: int | None) -> float:
    files = client.map(write_record, range(MOORINGS), times_per_chunk=times_per_chunk)  # <- here
    return float(np.mean(client.gather(client.map(stratification, files))))  # <- here


def bad(client: Client) -> float:
    return season(client, None)


def good(client: Client) -> float:
    return season(client, min(TIMES, 2_000))
