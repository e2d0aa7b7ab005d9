"""Tremor at seismic stations: mean range of the ground's motion in sliding windows.

source: dask/dask issue 7208
date:   2021-02-01 (the day is not given)
seen:   a Dask array made by from_array of a strided view into a NumPy array of 200 MB took much more memory than the
        view, which shares that of the array, and was slow before anything ran.
cause:  the view's windows overlap, and from_array makes copies of all of them: to hash them, and to send them in the
        graph.
cure:   make a Dask array of the plain array, and the sliding windows from that, in the tasks.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from dask.array.overlap import sliding_window_view
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
STATIONS = 10
SAMPLES = scaled(260_000)
WINDOW = 160
CHUNK = 20_000

EXPECTED = Expected(
    cause="the client hashes, and sends in the graph, all windows of the view: many times the data of the array",
    place="the line of from_array, or that of the view or compute",
    cure="from_array of the plain array, and windows in the tasks",
    says=r"(large|big|much data|data|MB|MiB|GB|GiB|bytes|arrays?).{0,60}\bgraph|\bgraph.{0,60}(large|big|data|MB"
    r"|MiB|GB|GiB|bytes|arrays?)"
    r"|hash|tokeni[sz]|(client|script).{0,60}(busy|build|prepar|before|sends?|serial|pickl)|serial(is|iz)|pickl"
    r"|from_array"
    r"|(sen[dt]s?|sending|embed\w*|ship\w*).{0,60}(data|arrays?|MB|MiB|GB|GiB)",
    places=(*marked(__file__),),
    cures=r"scatter|in (the|a) tasks?|on the workers|load|read|from_array|sliding|view|map_blocks|map_overlap"
    r"|name ?= ?False"
    r"|smaller|plain array|not .{0,30}graph|instead of (sending|embedding|passing)",
    never={
        COMPUTED_AGAIN: "each station's array is used once",
        MORE_WORKERS: "the client is what is slow",
        LONGER_TASKS: "tasks are few",
        MORE_MEMORY: "the data need not be there",
        HOLDS_GIL: "workers wait for the client",
    },
)


def motion(station: int) -> np.ndarray:
    """Motion of the ground at a station."""
    random = np.random.default_rng(station)
    return random.standard_normal(SAMPLES) * (1.0 + 0.3 * np.sin(np.arange(SAMPLES) / 900.0))


def mean_range(windows: da.Array) -> float:
    return float((windows.max(axis=1) - windows.min(axis=1)).mean().compute())


def bad(client: Client) -> float:
    total = 0.0
    for station in range(STATIONS):
        view = np.lib.stride_tricks.sliding_window_view(motion(station), WINDOW)  # <- here
        windows = da.from_array(view, chunks=(CHUNK, WINDOW))  # <- here
        total += mean_range(windows)  # <- here
    return total


def good(client: Client) -> float:
    total = 0.0
    for station in range(STATIONS):
        trace = da.from_array(motion(station), chunks=CHUNK)
        total += mean_range(sliding_window_view(trace, WINDOW))
    return total
