"""Sweeps of sonars are put together lazily, by a script that opens each file for each number it looks up.

source: pytroll/satpy issue 972; its cure: pytroll/satpy pull request 981
date:   2019-11-22
seen:   loading a scene, which should only plan what Dask will do, takes 35 minutes in the script, before any data is
        wanted; files are opened all the time.
cause:  the reader opens and closes the file for each of many small variables (scales, offsets, times), in the client,
        one after the other, while the workers wait.
cure:   open each file once, and take all small variables at that time (or keep the file open; or do it in tasks).
"""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import netCDF4
import numpy as np
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("netCDF4",)
CLUSTER = TWO_BY_ONE
FILES, BEAMS, SIDE = scaled(32), 16, 100
NUMBERS = ("scale", "offset", "start", "end")

EXPECTED = Expected(
    cause="the client opens a file for each small variable, thousands of times, before it sends anything: the"
    " workers are"
    " idle",
    place="number_of, or its calls in sweeps; in the client",
    cure="open each file once (cache what is read), or read in tasks",
    says=r"\bclient\b|\bopen(s|ed|ing)?\b|main (thread|process)|script|idle|nothing to (do|run)|before (any|the|it)"
    r"|wait(s|ing)? for"
    r" the client|between|netCDF4|reading|metadata",
    places=(*marked(__file__), function("number_of"), function("sweeps"), function("bad")),
    cures=r"\bonce\b|cache|keep (it|them|the file)|open\b|(in|on|by) (the )?(tasks?|workers?)|delayed|submit"
    r"|parallel|together|fewer"
    r"|outside of the loop|not in the (client|script)|lazily",
    never={
        MORE_WORKERS: "they wait",
        HOLDS_GIL: "the workers have nothing to do",
        LONGER_TASKS: "the tasks are not the problem",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each sweep is computed once",
    },
)


def path_of(sweep: int) -> Path:
    return folder("sonars") / f"sweep-{sweep:03d}.nc"


def prepare() -> None:
    echoes = np.random.default_rng(4).integers(0, 4_000, (SIDE, SIDE))
    for sweep in range(FILES):
        with netCDF4.Dataset(path_of(sweep), "w") as file:
            file.createDimension("x", SIDE)
            for beam in range(BEAMS):
                group = file.createGroup(f"beam {beam}")
                group.createVariable("echo", "i4", ("x", "x"))[:] = echoes
                for place, name in enumerate(NUMBERS):
                    group.createVariable(name, "f8", ())[:] = 1.0 + place + beam / 10.0 + sweep / 100.0


def number_of(path: Path, beam: int, name: str) -> float:
    with netCDF4.Dataset(path) as file:  # <- here
        return float(file[f"beam {beam}"][name][...])


def numbers_of(path: Path) -> list[list[float]]:
    with netCDF4.Dataset(path) as file:
        return [[float(file[f"beam {beam}"][name][...]) for name in NUMBERS] for beam in range(BEAMS)]


def echoes_of(path: Path) -> np.ndarray:
    with netCDF4.Dataset(path) as file:
        return np.stack([np.asarray(file[f"beam {beam}"]["echo"][:], "f8") for beam in range(BEAMS)])


def sweeps(numbers: list[list[list[float]]]) -> float:
    means = []
    for sweep, beams in enumerate(numbers):
        scale, offset, start, end = np.array(beams).T[:, :, None, None]
        echoes = da.from_delayed(delayed(echoes_of)(path_of(sweep)), (BEAMS, SIDE, SIDE), dtype="f8")
        means.append(((echoes * scale + offset) / (end - start)).mean())
    return float(da.stack(means).sum().compute())


def bad(client: Client) -> float:
    paths = [path_of(sweep) for sweep in range(FILES)]
    return sweeps(
        [[[number_of(path, beam, name) for name in NUMBERS] for beam in range(BEAMS)] for path in paths]
    )  # <- here


def good(client: Client) -> float:
    return sweeps([numbers_of(path_of(sweep)) for sweep in range(FILES)])
