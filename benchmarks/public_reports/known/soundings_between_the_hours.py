"""Fields of every hour are interpolated to the times at which soundings were made.

source: pydata/xarray pull request 11312; of the same kind: pydata/xarray issues 10130 and 9907
date:   2026-04-23 (issue 10130: 2025-03-17; issue 9907: 2024-12-18)
seen:   interpolation along a dimension with a hundred chunks has some forty thousand tasks and takes seven times as
        long as it might; on a cluster, workers die over it, and a rechunk by hand helps.
cause:  the interpolation wants the whole dimension in one chunk; as the data are cut along just that one, each chunk is
        cut into as many pieces as there are chunks, and all pieces are sent round and joined.
cure:   read the data with the interpolated dimension whole, in chunks along the others.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray", "scipy")
CLUSTER = TWO_BY_ONE
PARTS, HOURS_A_PART, CELLS = scaled(72), 24, 9_000
HOURS = PARTS * HOURS_A_PART
SOUNDINGS = 300

EXPECTED = Expected(
    cause="interpolation along time needs all hours in one chunk, but the chunks are cut along time: every chunk is cut"
    " into many pieces, which are moved and put together",
    place="the interp in at_soundings, or the computation there",
    cure="chunks with all of time, cut along the cells, from the reading on",
    says=r"rechunk(s|ed|ing)\b|(cut|split|sliced|taken) (in|into|up|apart|at|along)\b|pieces"
    r"|(moved?|sent|transfer\w*|sends?|moves|moving"
    r"|communicat\w+|shuffl\w+|network)\b|(small|short|tiny|many|thousands of|\d{4,})\W+(\w+\W+){0,3}(tasks|chunks)"
    r"|(tasks|chunks)\W+(\w+\W+){0,4}(small|short|tiny)|(whole|one chunk|single chunk)\W+(\w+\W+){0,4}(dimension|axis"
    r"|time)|chunk\w* (along|over|in) (the )?(interpolated|time|same)",
    places=(
        *marked(__file__),
        function("at_soundings"),
        function("interp"),
        function("interpolate"),
        r"rechunk",
    ),
    cures=r"chunks?\b|rechunk|whole|fewer|larger|longer|other dimension",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "more of them have more to send each other",
        LOCK: "there is none",
    },
)


def area(block_info: dict | None = None) -> np.ndarray:
    """Temperatures of some hours and some cells."""
    (first, last), (west, east) = block_info[None]["array-location"]
    hours, cells = np.arange(first, last)[:, None], np.arange(west, east)
    return (np.sin(hours * (2 * np.pi / 24)) * (1 + cells % 7) + cells / CELLS).astype(np.float32)


def temperatures(chunks: tuple[tuple[int, ...], tuple[int, ...]]) -> xr.DataArray:
    values = da.map_blocks(area, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0), np.float32))
    return xr.DataArray(values, dims=("hour", "cell"), coords={"hour": np.arange(HOURS, dtype=float)})


def at_soundings(field: xr.DataArray) -> float:
    """Mean square of the temperatures at the times of the soundings."""
    times = np.sort(np.random.default_rng(0).uniform(0, HOURS - 1, SOUNDINGS))
    values = field.interp(hour=times)  # <- here
    return float((values.astype(float) ** 2).mean().compute())  # <- here


def bad(client: Client) -> float:
    return at_soundings(temperatures(((HOURS_A_PART,) * PARTS, (CELLS,))))  # <- here


def good(client: Client) -> float:
    return at_soundings(temperatures(((HOURS,), (CELLS // 20,) * 20)))
