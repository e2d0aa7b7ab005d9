"""Baselines of an array of magnetometers are fitted one sensor at a time, by a function of NumPy arrays.

source: pydata/xarray issue 2499
date:   2018-10-20
seen:   an index is computed at each point of a grid. Without Dask it takes some time; with chunks (one row of the grid
        each) the same program is slower by far.
cause:  the function is called by groupby on the client, one point at a time, and asks for the values of that point: a
        computation of its own for every point, which makes the whole chunk of its row again, for one column of it.
cure:   apply the function to blocks within tasks (apply_ufunc with dask="parallelized", map_blocks), or load before.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray",)
CLUSTER = TWO_BY_ONE
ROWS, COLUMNS, TIMES = scaled(10), 36, 3000

EXPECTED = Expected(
    cause="for each sensor, the client starts a computation of its own (.values), which makes the chunk of a whole row"
    " again",
    place="the map over groups, or .values in the function it calls; signals_of_row is what is done again",
    cure="apply_ufunc or map_blocks over the blocks, or load the data before",
    says=r"(one|a|each|every|per) (point|sensor|group|call|value|time|computation|compute)\b|(one )?(at a time|by one"
    r"|after (the other|another))|in turn|many (small )?comput\w*|\d+ (comput|calls)\w*|(again|anew|repeated(ly)?"
    r"|more than once|many times|\d+ times|times over)|re-?(comput|calculat|ma[dk])\w*|waits? for (the|each) (client"
    r"|script|result)|(on|in|by) the client|client('s)? .{0,30}(busy|comput|wait|loop)|round.?trips?",
    places=(
        *marked(__file__),
        function("without_baseline"),
        function("signals_of_row"),
        function("signals"),
        function("values"),
    ),
    cures=r"apply_ufunc|map_blocks|parallelized|persist|load\b|once\b|together|one (compute|computation)|single compute"
    r"|in(side)? (the )?tasks?|on the workers|whole (rows?|blocks?|chunks?)|without (the )?(loop|group)|lazy|lazily",
    never={
        MORE_WORKERS: "those two have little to do",
        MORE_MEMORY: "the data are small",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        LONGER_TASKS: "tasks are few in each computation",
    },
)


def signals_of_row(row: np.ndarray) -> np.ndarray:
    """Signals of the sensors of a row."""
    times = np.linspace(0, 20, TIMES)
    phases = np.arange(COLUMNS) * 0.1 + row[0]
    signals = np.zeros((COLUMNS, TIMES))
    for tone in range(1, 9):
        signals += np.sin(times[None, :] * tone + phases[:, None]) / tone
    return signals[None] + times * 0.3


def signals() -> xr.DataArray:
    rows = da.arange(ROWS, chunks=1)
    chunks = ((1,) * ROWS, (COLUMNS,), (TIMES,))
    return xr.DataArray(
        rows.map_blocks(signals_of_row, chunks=chunks, new_axis=[1, 2], dtype=float),
        dims=("row", "column", "time"),
        coords={"row": np.arange(ROWS), "column": np.arange(COLUMNS)},
    )


def residuals(values: np.ndarray) -> np.ndarray:
    """A signal without its baseline, which is a polynomial."""
    times = np.linspace(-1, 1, values.size)
    return values - np.polynomial.polynomial.polyval(times, np.polynomial.polynomial.polyfit(times, values, 3))


def without_baseline(sensor: xr.DataArray) -> xr.DataArray:
    values = sensor.values  # <- here
    return sensor.copy(data=residuals(values.ravel()).reshape(values.shape))


def bad(client: Client) -> float:
    points = signals().stack(sensor=("row", "column"))
    clean = points.groupby("sensor").map(without_baseline)  # <- here
    return float((clean**2).mean())


def good(client: Client) -> float:
    clean = xr.apply_ufunc(
        residuals,
        signals(),
        input_core_dims=[["time"]],
        output_core_dims=[["time"]],
        vectorize=True,
        dask="parallelized",
        output_dtypes=[float],
    )
    return float((clean**2).mean().compute())
