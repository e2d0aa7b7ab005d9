"""Trends of the blocks of a cube come back one by one, and the file with all of them is written after each.

source: dask/dask issue 4011
date:   2018-09-25
seen:   results of many tasks are put into a copy of the cube as they complete, in the script, which saves the copy each
        time; the workers run for a moment and then everything seems frozen, while the script cannot keep up.
cause:  for each result the client writes the whole file once more; results wait for the client, and the workers end up
        with nothing to do.
cure:   put the results into the cube as they come, and write the file once, at the end (or let tasks write their own).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xarray as xr
from distributed import Client, as_completed

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

NEEDS = ("xarray", "scipy")
CLUSTER = TWO_BY_ONE
BLOCKS, ROWS, COLUMNS, TERMS = scaled(60), 20, 1_200, 6

EXPECTED = Expected(
    cause="the client writes the whole result file after every single result; this takes most of the time, and the"
    " workers have nothing to do meanwhile",
    place="the loop of collected, where it calls save (to_netcdf) for each result; in the client",
    cure="write once after the loop (or seldom), or let the tasks write their own parts",
    says=r"\bclient\b|to_netcdf|netcdf|\bwrit(e|es|ing|ten)\b|sav(e|es|ing)\b|main (program|thread|process)|\bscript"
    r"|your (own )?(program|process|code)|\bidle|nothing to (do|run)",
    places=(*marked(__file__), function("save"), function("collected"), r"to_netcdf"),
    cures=r"once\b|after the loop|at the end|out of the loop|outside (of )?the loop|seldom|less often|fewer"
    r"|(in|on|by|to|from|into) (the |a |your )?(tasks?|workers?)|move\b|background|thread|batch|map_blocks|submit",
    never={
        MORE_WORKERS: "those that there are wait for the client",
        PROCESSES: "those that there are wait for the client",
        HOLDS_GIL: "it is not in the tasks",
        LONGER_TASKS: "tasks take tenths of a second",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "there is enough",
    },
)


def fit(block: int) -> tuple[int, np.ndarray]:
    """Terms of a harmonic fit for each pixel of some rows."""
    rng = np.random.default_rng(block)
    series = rng.standard_normal((60, ROWS * COLUMNS), dtype="f4")
    months = np.arange(60)[:, None] * 2 * np.pi / 12
    design = np.hstack([np.ones_like(months), months, *(f(months * k) for k in (1, 2) for f in (np.sin, np.cos))])
    terms = np.linalg.lstsq(design, series, rcond=None)[0]
    return block, terms.reshape(TERMS, ROWS, COLUMNS)


def empty_cube() -> xr.DataArray:
    shape = (TERMS, BLOCKS * ROWS, COLUMNS)
    return xr.DataArray(np.zeros(shape, "f8"), dims=("term", "y", "x"), name="terms")


def save(cube: xr.DataArray) -> None:
    cube.to_netcdf(folder("trends") / "terms.nc", engine="scipy")  # <- here


def collected(cube: xr.DataArray, results: Iterable) -> xr.DataArray:
    for _, (block, terms) in results:
        cube[:, block * ROWS : (block + 1) * ROWS] = terms
        save(cube)  # <- here
    return cube


def collected_then_saved(cube: xr.DataArray, results: Iterable) -> xr.DataArray:
    for _, (block, terms) in results:
        cube[:, block * ROWS : (block + 1) * ROWS] = terms
    save(cube)
    return cube


def bad(client: Client) -> float:
    results = as_completed(client.map(fit, range(BLOCKS)), with_results=True)  # <- here
    return float(np.abs(collected(empty_cube(), results)).sum())  # <- here


def good(client: Client) -> float:
    results = as_completed(client.map(fit, range(BLOCKS)), with_results=True)
    return float(np.abs(collected_then_saved(empty_cube(), results)).sum())
