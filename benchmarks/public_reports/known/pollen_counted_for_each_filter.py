"""Slides of pollen are kept or dropped by a lazy condition, which is then used three times.

source: GeoscienceAustralia/dea-notebooks pull request 763
date:   2021-03-03
seen:   loading all images of a place shows the masks being loaded twice, one after the other, whenever images are to
        be filtered by the share of good pixels.
cause:  whether an image is good enough is a lazy array; each selection by it has to know it, and so computes it (and
        loads all masks) for itself.
cure:   compute the condition once, and select with its values.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

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

NEEDS = ("xarray",)
CLUSTER = TWO_BY_ONE
SLIDES, SIDE = scaled(130), 500

EXPECTED = Expected(
    cause="the masks are made again each time the lazy condition is used: for the count and for both selections",
    place="the lines of kept that use the condition, or grains",
    cure="compute (or load, persist) the condition once",
    says=r"again|repeat|recompute|twice|(two|three|3|2|several|many) times|(each|every|separate|several) (compute"
    r"|selection|use)"
    r"|duplicat|same (tasks?|work|keys?|data)|more than once",
    places=(*marked(__file__), function("grains"), function("kept"), function("bad")),
    cures=r"persist|\bonce\b|compute\(\)|\.load|load\(\)|keep (it|them|the)|together|one compute|dask\.compute"
    r"|reuse|cache|hold on to",
    never={
        MORE_WORKERS: "there is less to do, not more to do it with",
        HOLDS_GIL: "one thread a worker",
        LONGER_TASKS: "they are long enough",
        MORE_MEMORY: "there is enough",
    },
)


def grains(blank: np.ndarray, block_info: dict[Any, Any] | None = None) -> np.ndarray:
    """Mask of the pixels in focus of a slide."""
    slide = block_info[0]["chunk-location"][0] if block_info else 0
    picture = np.random.default_rng(slide).normal(0.0, 1.0 + slide % 3, blank.shape)
    for _ in range(3):
        picture = np.sort(picture + np.roll(picture, 1, axis=1), axis=2)
    return np.abs(picture) < 20.0


def masks() -> xr.DataArray:
    blank = da.zeros((SLIDES, SIDE, SIDE), chunks=(1, -1, -1), dtype="i1")
    return xr.DataArray(blank.map_blocks(grains, dtype=bool), dims=("slide", "y", "x"))


def pictures() -> xr.DataArray:
    slides = da.arange(SLIDES, chunks=1)[:, None, None] * da.ones((1, SIDE, SIDE), chunks=-1)
    return xr.DataArray(slides, dims=("slide", "y", "x"))


def kept(good_enough: xr.DataArray) -> float:
    count = int(good_enough.sum())  # <- here
    seen = pictures().isel(slide=good_enough.values)  # <- here
    dated = xr.DataArray(da.arange(SLIDES, chunks=1), dims="slide").isel(slide=good_enough.values)  # <- here
    return count + float((seen * dated).mean().compute())


def good_share() -> xr.DataArray:
    return masks().mean(("y", "x")) > 0.85


def bad(client: Client) -> float:
    return kept(good_share())  # <- here


def good(client: Client) -> float:
    return kept(good_share().compute())
