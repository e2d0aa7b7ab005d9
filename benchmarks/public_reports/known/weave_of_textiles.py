"""Evenness of a weave is measured in a window around each pixel of photographs of cloth.

source: scipy/scipy issue 8916; of the same kind: scikit-image/scikit-image issue 3166, numpy/numpy issue 11848
date:   2018-06-09 (11848: 2018-08-31)
seen:   a measure of contrast by scipy's generic_filter works well on small pictures, and takes very long on those of
        2000 by 2000 pixels.
cause:  the filter calls a Python function for each pixel.
cure:   filters that are compiled, or an array of all windows for functions of whole arrays.
"""

from __future__ import annotations

import numpy as np
from distributed import Client
from numpy.typing import NDArray
from scipy import ndimage  # type: ignore[import-untyped]

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("scipy",)
CLUSTER = TWO_BY_ONE
CLOTHS = scaled(110)
SIDE = 300
WINDOW = 5

EXPECTED = Expected(
    cause="a Python function is called for each pixel",
    place="generic_filter() in unevenness, and the function that it calls",
    cure="compiled filters (maximum_filter, minimum_filter) instead of a Python function",
    says=r"generic_filter|(function|call)s?.{0,40}(for|per|at) (each|every|one|a single)|(each|every|per) (pixel"
    r"|element)"
    r"|python (function|call|code|speed|loop)s?|callback|interpret|range_of|many (small |short )?calls|vectori[sz]",
    places=(*marked(__file__), function("unevenness"), function("range_of"), r"_?filters\.py"),
    cures=r"vectori[sz]|maximum_filter|minimum_filter|compiled|whole arrays?|numpy|numba|cython|LowLevelCallable"
    r"|without (a )?python|fewer calls|all (pixels|windows) at once|sliding_window|processes|release the GIL"
    r"|array at once",
    never={
        MORE_MEMORY: "a picture has less than a megabyte",
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
    },
)


def photograph(number: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(number)
    threads = np.sin(np.arange(SIDE) * (0.5 + number / 50))
    weave: NDArray[np.float64] = threads[:, None] * threads[None, :] + rng.normal(0, 0.1, (SIDE, SIDE))
    return weave


def range_of(window: NDArray[np.float64]) -> float:
    """Largest less smallest value of a window."""
    return float(window.max() - window.min())  # <- here


def unevenness(number: int) -> float:
    picture = photograph(number)
    ranges = ndimage.generic_filter(picture, range_of, size=WINDOW)  # <- here
    return float(np.quantile(ranges, 0.9))


def unevenness_by_filters(number: int) -> float:
    picture = photograph(number)
    ranges = ndimage.maximum_filter(picture, size=WINDOW) - ndimage.minimum_filter(picture, size=WINDOW)
    return float(np.quantile(ranges, 0.9))


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(unevenness, range(CLOTHS)))))


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(unevenness_by_filters, range(CLOTHS)))))
