"""Greenness of hillsides through the years, smoothed for each pixel.

source: dask/dask issue 4011
date:   2018-09-25
seen:   a function of a pixel's time series, mapped over all pixels of a cube with client.map, ran for a second and then
        froze; with a pause in the function it went on.
cause:  each pixel is a task of its own, far shorter than what the scheduler needs for a task.
cure:   fewer tasks: batches of many pixels each.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from distributed import Client, as_completed

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
ROWS = scaled(80)
COLUMNS = 100
DATES = 46

EXPECTED = Expected(
    cause="too many tiny tasks: one for each pixel, each shorter than the scheduler's overhead",
    place="the line of client.map, or the function of a pixel",
    cure="many pixels in a task: batches",
    says=r"(tiny|small|short|many) (\w+ )?tasks|tasks (are|is|were) (too |very |so )?(tiny|small|short|many)"
    r"|overhead|scheduler.{0,60}(busy|limit|bottleneck|spends|keep)|shorter than",
    places=(*marked(__file__), function("smoothed")),
    cures=r"batch|larger|longer|bigger|fewer|more (work|pixels|items|calls) (in|per)|group|several .{0,30}(in"
    r"|per) (a|one|each)",
    never={
        COMPUTED_AGAIN: "each pixel is smoothed once",
        MORE_WORKERS: "the scheduler doesn't keep two of them busy",
        MORE_MEMORY: "memory is plenty",
    },
)


def hillsides() -> np.ndarray:
    """Cube of an index of greenness: rows, columns and dates."""
    random = np.random.default_rng(17)
    season = 0.4 + 0.3 * np.sin(np.linspace(0.0, 4 * np.pi, DATES))
    return (season + 0.05 * random.standard_normal((ROWS, COLUMNS, DATES))).astype("float32")


def smoothed(pixel: tuple[int, int], cube: np.ndarray) -> tuple[tuple[int, int], np.ndarray]:
    """Series of a pixel without its outliers."""
    series = pd.Series(cube[pixel[0], pixel[1]])
    return pixel, series.rolling(5, center=True, min_periods=1).median().to_numpy()


def smoothed_row(row: int, cube: np.ndarray) -> tuple[int, np.ndarray]:
    """Series of all pixels of a row."""
    return row, np.stack([smoothed((row, column), cube)[1] for column in range(COLUMNS)])


def bad(client: Client) -> float:
    cube = hillsides()
    everywhere = client.scatter(cube, broadcast=True)
    clean = np.empty_like(cube)
    pixels = [(row, column) for row in range(ROWS) for column in range(COLUMNS)]
    futures = client.map(smoothed, pixels, cube=everywhere)  # <- here
    for _, (pixel, series) in as_completed(futures, with_results=True):
        clean[pixel] = series
    return float(clean.sum(dtype="float64"))


def good(client: Client) -> float:
    cube = hillsides()
    everywhere = client.scatter(cube, broadcast=True)
    clean = np.empty_like(cube)
    futures = client.map(smoothed_row, range(ROWS), cube=everywhere)
    for _, (row, series) in as_completed(futures, with_results=True):
        clean[row] = series
    return float(clean.sum(dtype="float64"))
