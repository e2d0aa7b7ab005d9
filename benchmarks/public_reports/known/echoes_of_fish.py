"""Echograms of a research ship are cleaned of noise, ping by ping, by a function for labelled arrays.

source: kmnhan/erlabpy pull request 191
date:   2025-11-06
seen:   analysis functions for labelled arrays cannot be used well with Dask: they are inefficient, and load the whole
        array into memory before they begin.
cause:  the function asks for .values, so that all chunks come to the process of the script, which then does the work
        alone, while workers have nothing to do.
cure:   apply_ufunc with dask="parallelized": the work is done on chunks where they are, and stays lazy.
"""

from __future__ import annotations

from typing import Any

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
BLOCKS, PINGS, DEPTHS = scaled(48), 340, 4_000
WINDOW = 7

EXPECTED = Expected(
    cause="values brings the whole array to the script, which cleans it alone while workers are idle",
    place="echogram.values or the call of loudest in bad, and cleaned, which the script runs",
    cure='apply_ufunc(..., dask="parallelized") or map_blocks, so that workers clean chunks',
    says=r"(client|script|main (process|thread)|your (process|program|code)).{0,80}(comput|works?\b|working|busy|alone"
    r"|itself|runs?\b|spen[dt]|does\b|collect|gather|load|bring|pull)|(workers?|cluster).{0,60}(idle|nothing|wait|unused"
    r"|no (work|tasks))|\.values|whole array|into memory|gather|outside (of )?(dask|tasks|the cluster)|(not|nothing)"
    r" (\w+ ){0,3}(in parallel|on the cluster|on workers)|(collect|transfer|mov|download|brought|sent|loaded).{0,60}"
    r"(client|script|main process)",
    places=(*marked(__file__), function("cleaned"), function("loudest"), function("bad")),
    cures=r"apply_ufunc|map_blocks|map_overlap|parallelized|lazy|lazily|on (the )?(workers?|cluster)|in (the )?tasks"
    r"|chunk by chunk|before (you )?(gather|collect|comput|load)|\bdask\b.{0,40}function|leave .{0,40}(cluster|workers)"
    r"|reduce .{0,40}(first|before)|submit|client\.map|delayed|keep .{0,40}(cluster|workers|dask)",
    never={
        LONGER_TASKS: "chunks are large enough",
        HOLDS_GIL: "workers have one thread each",
        MORE_WORKERS: "those that are there have nothing to do",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
    },
)


def sounded(block_info: Any = None) -> np.ndarray:
    """Echoes of some pings: noise, which is made quickly, and a layer of fish."""
    number = block_info[None]["chunk-location"][0]
    random = np.random.default_rng(number)
    echoes = random.random((PINGS, DEPTHS))
    echoes[:, 800 + 10 * number : 860 + 10 * number] += 0.5
    return echoes


def survey() -> xr.DataArray:
    echoes = da.map_blocks(sounded, chunks=((PINGS,) * BLOCKS, (DEPTHS,)), dtype=float, meta=np.empty((0, 0)))
    return xr.DataArray(echoes, dims=("ping", "depth"))


def cleaned(echoes: np.ndarray) -> np.ndarray:
    """Loudest echo of each ping, after single loud ones were taken out by a running median."""
    loudest_of = np.empty(len(echoes))
    windows = np.empty((echoes.shape[1] - WINDOW + 1, WINDOW))
    for ping, echo in enumerate(echoes):
        windows[:] = np.lib.stride_tricks.sliding_window_view(echo, WINDOW)
        windows.sort(axis=1)
        loudest_of[ping] = windows[:, WINDOW // 2].max()
    return loudest_of


def loudest(echogram: xr.DataArray) -> xr.DataArray:
    found = cleaned(echogram.values)  # <- here
    return xr.DataArray(found, dims=("ping",))


def lazily_loudest(echogram: xr.DataArray) -> Any:
    return xr.apply_ufunc(
        cleaned, echogram, input_core_dims=[["depth"]], dask="parallelized", output_dtypes=[echogram.dtype]
    )


def bad(client: Client) -> float:
    return float(loudest(survey()).mean())  # <- here


def good(client: Client) -> float:
    return float(lazily_loudest(survey()).mean().compute())
