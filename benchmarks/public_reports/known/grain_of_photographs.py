"""Grain of an old photograph, smoothed at shifted positions and averaged.

source: scikit-image/scikit-image pull request 2647
date:   2017-11-03
seen:   a picture denoised at many shifts, with dask.delayed for each, took about as long as a loop in one of the ways
        to write it, and much less in another.
cause:  the function is called before delayed gets its result, so all shifts are denoised by the script, in turn, and
        nothing is left for the workers but the sum.
cure:   give the function to delayed, and call what that returns.
"""

from __future__ import annotations

import dask
import numpy as np
from distributed import Client
from scipy import ndimage

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
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

NEEDS = ("scipy",)
CLUSTER = TWO_BY_ONE
SHIFTS = scaled(44)
SIDE = 700

EXPECTED = Expected(
    cause="the work is done in the client, while the workers are idle: the function is called before delayed",
    place="the line with delayed, or the function that denoises",
    cure="delayed(function)(arguments)",
    says=r"(client|script)('s)?\b.{0,60}(busy|comput\w+|work\w*|itself|\bdoes\b)|(in|by|on) the (client|script"
    r"|main process)"
    r"|workers? (are|were|is|was|have|had|stay\w*) (mostly )?(idle|nothing)|before delayed|delayed.{0,60}(result"
    r"|called|already)"
    r"|eager",
    places=(*marked(__file__), function("denoised")),
    cures=r"delayed\((the )?\w+\)\(|delayed|submit|client\.map|on the workers|in (a )?tasks?|pass the function"
    r"|without calling",
    never={
        COMPUTED_AGAIN: "each shift is done once",
        LONGER_TASKS: "tasks are few",
        MORE_WORKERS: "those that are there are idle",
        MORE_MEMORY: "memory is plenty",
        HOLDS_GIL: "no task has much to do",
    },
)


def photograph() -> np.ndarray:
    random = np.random.default_rng(77)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    return np.sin(rows / 40.0) * np.cos(columns / 55.0) + 0.3 * random.standard_normal((SIDE, SIDE))


def denoised(picture: np.ndarray, shift: int) -> np.ndarray:
    """Picture denoised at a shift, and shifted back."""
    moved = np.roll(picture, shift, axis=(0, 1))
    smooth = ndimage.median_filter(moved, size=5)
    smooth = ndimage.gaussian_filter(smooth, 1.5)
    return np.roll(smooth, -shift, axis=(0, 1))


def bad(client: Client) -> float:
    picture = photograph()
    versions = [dask.delayed(denoised(picture, shift)) for shift in range(SHIFTS)]  # <- here
    average = dask.delayed(sum)(versions) / SHIFTS
    return float(np.abs(average.compute()).mean())


def good(client: Client) -> float:
    picture = dask.delayed(photograph)()
    versions = [dask.delayed(denoised)(picture, shift) for shift in range(SHIFTS)]
    average = dask.delayed(sum)(versions) / SHIFTS
    return float(np.abs(average.compute()).mean())
