"""Recordings of hearts are standardized block by block, with the whole recording as a further argument.

source: dask/dask issue 3263 (a Dask array as a keyword of map_blocks)
date:   2018-03-09
seen:   the function of map_blocks needs another Dask array as a whole, which is passed as a keyword; since that works,
        it is put together first and given to each block.
cause:  each block's task has the whole array, which one task puts together, and takes its mean and deviation again.
cure:   reduce the array first, as an array of its own, and give the small result to the blocks.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client
from numpy.typing import NDArray

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
BLOCKS = 44
MOMENTS, LEADS = scaled(20_000), 50

EXPECTED = Expected(
    cause="each block's task gets the whole array and reduces it again",
    place="standardized: mean() and std(), or the map_blocks() with the array as a keyword",
    cure="mean and deviation of the array once, as Dask arrays",
    says=r"(whole|entire|full) (array|recording|dataset)|all (of )?(the )?(other )?(blocks|chunks)"
    r"|(each|every|per) (block|chunk|task).{0,60}(whole|entire|all|again|same|reduc)"
    r"|(reduc|mean|std|deviation|same|work).{0,60}(again|repeat)|\bstd\b|_var\b|\bmean\b|standardized|(large|big"
    r"|same) (argument|dependency|input|array)|concatenat"
    r"|finalize|one (big|large|single) (task|chunk|array)",
    places=(*marked(__file__), function("standardized"), r"_methods\.py|numpy"),
    cures=r"once|first|before|reduc|mean|persist|smaller|less|only what|outside|Dask arrays?|rechunk|share"
    r"|compute .{0,20}(once|ahead)"
    r"|precomput|avoid",
    never={
        MORE_WORKERS: "each of them would get the whole",
        LONGER_TASKS: "tasks take long enough",
        SLEEP: "nobody sleeps",
    },
)


def beats(block: NDArray[np.int64]) -> NDArray[np.float64]:
    """Recording of a block: moments by leads."""
    rng = np.random.default_rng(int(block[0]))
    return rng.normal(block[0] % 7, 1 + block[0] % 3, (MOMENTS, LEADS))


def recording() -> da.Array:
    numbers = da.arange(BLOCKS, chunks=1)
    chunks = ((MOMENTS,) * BLOCKS, (LEADS,))
    heart: da.Array = da.map_blocks(beats, numbers, chunks=chunks, new_axis=1, dtype=float, meta=np.empty((0, 0)))
    return heart


def standardized(block: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    scores: NDArray[np.float64] = (block - whole.mean(axis=0)) / whole.std(axis=0)  # <- here
    return scores


def bad(client: Client) -> float:
    heart = recording()
    scores = da.map_blocks(standardized, heart, whole=heart, dtype=float, meta=np.empty((0, 0)))  # <- here
    return float((scores > 1).mean().compute())  # <- here


def good(client: Client) -> float:
    heart = recording()
    scores = (heart - heart.mean(axis=0)) / heart.std(axis=0)
    return float((scores > 1).mean().compute())
