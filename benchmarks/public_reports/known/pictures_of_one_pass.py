"""Pictures of a satellite's pass: channels are shown on a map, with the sun's height at each pixel.

source: pytroll/satpy issue 2434
date:   2023-04-01
seen:   images took suspiciously long. The longitudes and latitudes of the area, three seconds each time, were computed
        at least once for each image.
cause:  positions are lazy, each image is computed by itself, and so everything that images share is computed again.
cure:   compute the positions once and keep them, or compute all images together.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
LINES = scaled(1_600)
ACROSS = 1_600
CHANNELS = ("red", "green", "blue", "infrared", "vapour", "ozone", "dust", "ash")

EXPECTED = Expected(
    cause="the positions are computed again for each image",
    place="the compute() of each image, or the positions",
    cure="persist the positions, or compute all images together in one compute()",
    says=r"(comput|evaluat|calculat|ran|run|repeat|execut)\w* .{0,40}(again|twice|times|repeatedly|more than once|each)"
    r"|recomput|same (tasks?|work)|repeat|\d times",
    places=(*marked(__file__), function("positions"), function("on_earth"), function("picture")),
    cures=r"persist|together|once|keep|cache|one (call|compute|computation)|single compute|dask\.compute",
    never={
        LONGER_TASKS: "tasks are long enough",
        HOLDS_GIL: "the work is NumPy's, without the GIL",
        LOCK: "no task waits for a lock",
        MORE_WORKERS: "all cores are busy",
    },
)


def on_earth(across: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Height of the sun at a view of the scanner, by iteration to the ellipsoid."""
    longitude, latitude = across.copy(), along.copy()
    for _ in range(12):
        radius = 1 / np.sqrt(1 - 0.00669 * np.sin(latitude) ** 2)
        latitude = along + 0.01 * np.sin(2 * latitude) * radius
        longitude = across + 0.01 * np.cos(latitude) * np.sin(longitude)
    return np.cos(latitude) * np.cos(longitude - 0.3)


def positions() -> da.Array:
    along = da.linspace(0, 1, LINES, chunks=LINES // 8)[:, None]
    across = da.linspace(-0.5, 0.5, ACROSS, chunks=ACROSS)[None, :]
    grid = da.broadcast_arrays(across, along)
    return da.map_blocks(on_earth, *grid, dtype=float)


def channel(number: int) -> da.Array:
    return da.random.default_rng(number).random((LINES, ACROSS), chunks=(LINES // 8, ACROSS))


def picture(number: int, sun: da.Array) -> da.Array:
    """Mean brightness of each line, as if the sun stood above it."""
    return da.clip(channel(number) / da.maximum(sun, 0.2), 0, 1.5).mean(axis=1)


def all_pictures(sun: da.Array) -> float:
    total = 0.0
    for number in range(len(CHANNELS)):
        total += float(picture(number, sun).compute().sum())  # <- here
    return total


def bad(client: Client) -> float:
    return all_pictures(positions())  # <- here


def good(client: Client) -> float:
    return all_pictures(positions().persist())
