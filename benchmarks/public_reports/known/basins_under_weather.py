"""Weather of grid cells becomes weather of river basins: weights of cells in basins, times values of cells.

source: pangeo-data/pangeo issue 756
date:   2020-01-30
seen:   the dot product of two stores took 22 minutes, though the weights are 60 MB and the values under 3 GB.
cause:  both are chunked along the axis that is summed over. Each pair of chunks gives a partial product as large as the
        result, all of which are held, moved between workers, and added.
cure:   rechunk so that the axis that is summed over is whole; then each product is final.
"""

from __future__ import annotations

import dask.array as da
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
BASINS = 500
CELLS = 3_200
HOURS = scaled(16_000)
STEP = 50

EXPECTED = Expected(
    cause="the axis that is summed over is cut into small chunks, so many partial products are moved and added up",
    place="the dot product of weights and weather",
    cure="rechunk the cells into one chunk (larger chunks along the axis that is summed over)",
    says=r"partial|intermediate|contract|chunk\w*\b.{0,60}\b(axis|axes|dimension|small|along)"
    r"|(small|many|tiny) chunks"
    r"|transfer|mov(es|ed|ing)\b.{0,30}between workers|copied between|sum(med|ming)? (over|up|of)|temporary"
    r"|(many|small|short) tasks|tasks? (are|were) (too )?(small|short)",
    places=(*marked(__file__), function("of_basins"), r"\b(dot|matmul|tensordot)\b"),
    cures=r"rechunk|(larger|bigger|fewer|whole|one|single|other) chunks?|chunks? (larger|bigger)"
    r"|fewer, (larger|longer)",
    never={
        COMPUTED_AGAIN: "all is computed once",
        HOLDS_GIL: "products of matrices release it",
        MORE_WORKERS: "more workers move even more partial products",
    },
)


def weights() -> da.Array:
    """Share of each cell in each basin."""
    return da.random.default_rng(3).random((BASINS, CELLS), chunks=(BASINS, STEP))


def weather() -> da.Array:
    """Rain of each cell in each hour."""
    return da.random.default_rng(4).gamma(0.5, 2.0, (CELLS, HOURS), chunks=(STEP, 4_000))


def of_basins(shares: da.Array, rain: da.Array) -> float:
    basins = shares.dot(rain)  # <- here
    return float((basins**2).mean().compute())


def bad(client: Client) -> float:
    return of_basins(weights(), weather())  # <- here


def good(client: Client) -> float:
    return of_basins(weights().rechunk((-1, -1)), weather().rechunk((-1, 2_000)))
