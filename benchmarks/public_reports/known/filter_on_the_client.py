"""A function of a library for numpy is handed a Dask array.

source: bradyrx/esmtools issue 65; of the same kind: xarray-contrib/xarray-spatial issue 1122
date:   2019-10-22
seen:   fits along time of a large data set come back as numpy arrays, at once and slowly, or fill the memory, though
        the input is a Dask array and there is a cluster.
cause:  the function turns its input into a numpy array: all of it is computed, sent to the client and worked on there,
        by one process, while the cluster is idle.
cure:   apply the function to the blocks of the array, on the workers.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client
from scipy import signal

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("scipy",)
CLUSTER = TWO_BY_ONE
DAYS, SIDE = 600, scaled(200)

EXPECTED = Expected(
    cause="the array is brought to the client, which filters it alone",
    place="the call of the filter in the client's code",
    cure="map_blocks, so that the workers filter",
    says=r"client|gather|collect|idle|workers? (wait|ha[sd] nothing|are free)|local(ly)?\b|script|main (process|thread)"
    r"|between computations|outside (of )?(tasks|Dask|the cluster)|transfer|numpy|asarray|__array__|nothing to do",
    places=(*marked(__file__), function("without_seasons"), r"sosfiltfilt|__array__|asarray"),
    cures=r"map_blocks|map_overlap|apply_ufunc|delayed|submit|on the (workers|cluster)|in (the )?tasks|workers|keep"
    r"|gather less|lazy|blocks|reduce",
    never={
        LONGER_TASKS: "the cluster is idle for want of tasks, not for their length",
        MORE_WORKERS: "those there are have nothing to do",
        r"(?i)GIL contention": "the workers only wait",
    },
)


def temperatures(block_info: dict | None = None) -> np.ndarray:
    row = block_info[None]["chunk-location"][1]
    return np.random.default_rng(row).standard_normal((DAYS, SIDE // 8, SIDE))


def stack() -> da.Array:
    chunks = ((DAYS,), (SIDE // 8,) * 8, (SIDE,))
    return da.map_blocks(temperatures, chunks=chunks, dtype=float, meta=np.empty((0, 0, 0)))


def without_seasons(values: np.ndarray) -> np.ndarray:
    sos = signal.butter(16, (0.1, 0.4), "bandpass", output="sos")
    return signal.sosfiltfilt(sos, values, axis=0)  # <- here


def bad(client: Client) -> float:
    return float(without_seasons(stack()).std())  # <- here


def good(client: Client) -> float:
    return float(stack().map_blocks(without_seasons, dtype=float, meta=np.empty((0, 0, 0))).std().compute())
