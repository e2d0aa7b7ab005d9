"""Trends along time are fitted to each pixel of a map by a function for one series.

source: bradyrx/esmtools issue 63
date:   2019-09-26
seen:   regressions of a chunked data set are sluggish; they only work with vectorize=True, which makes them slower.
cause:  apply_ufunc with vectorize=True calls a Python function once for each pixel, which takes a fraction of a
        millisecond for some dozen numbers.
cure:   sums and products over the whole block at once, along the time axis.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client
from scipy import stats

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "scipy")
CLUSTER = TWO_BY_ONE
YEARS, ROWS, COLUMNS = 60, scaled(120), 240

EXPECTED = Expected(
    cause="a Python function is called once for each pixel",
    place="trend_of_series, or where apply_ufunc vectorizes it",
    cure="compute on whole blocks with numpy",
    says=r"\bpython\b|vectori[sz]|(each|every|per|one) (pixel|element|value|series|row|item|call|cell|point)|calls?\b"
    r"|one (by one|at a time|after the other)|interpret|small arrays|element[- ]wise|\bloops?\b",
    places=(*marked(__file__), function("trend_of_series"), r"linregress|_vectorize_call|vectorize\b|function_base"),
    cures=r"vectori[sz]|whole (array|block|chunk)s?|numpy|array(s)? (at once|operations?|expression)"
    r"|all (at once|pixels)"
    r"|numba|cython|compil|at once|fewer calls|axis",
    never={
        LONGER_TASKS: "tasks take a second each",
        MORE_WORKERS: "the cores are busy",
        MORE_MEMORY: "all of it is small",
        HOLDS_GIL: "a worker has one thread",
    },
)


def temperatures(block_info: dict | None = None) -> np.ndarray:
    location = block_info[None]
    rng = np.random.default_rng(location["chunk-location"][1])
    warming = np.linspace(0.0, 1.5, YEARS)[:, np.newaxis, np.newaxis]
    return warming * rng.random((1, *location["chunk-shape"][1:])) + rng.normal(size=location["chunk-shape"])


def climate() -> xr.DataArray:
    size = ROWS // 8
    chunks = ((YEARS,), (size,) * 8, (COLUMNS,))
    data = da.map_blocks(temperatures, chunks=chunks, dtype=float, meta=np.empty((0, 0, 0)))
    return xr.DataArray(data, dims=("year", "row", "column"), coords={"year": np.arange(YEARS) + 1960.0})


def trend_of_series(years: np.ndarray, series: np.ndarray) -> float:
    return float(stats.linregress(years, series).slope)  # <- here


def trends_of_block(years: np.ndarray, series: np.ndarray) -> np.ndarray:
    centred = years - years.mean()
    return (series - series.mean(axis=-1, keepdims=True)) @ centred / (centred @ centred)


def bad(client: Client) -> float:
    field = climate()
    trends = xr.apply_ufunc(  # <- here
        trend_of_series,
        field.year,
        field,
        input_core_dims=[["year"], ["year"]],
        vectorize=True,
        dask="parallelized",
        output_dtypes=[float],
    )
    return float(trends.mean().compute())  # <- here


def good(client: Client) -> float:
    field = climate()
    trends = xr.apply_ufunc(
        trends_of_block,
        field.year,
        field,
        input_core_dims=[["year"], ["year"]],
        dask="parallelized",
        output_dtypes=[float],
    )
    return float(trends.mean().compute())
