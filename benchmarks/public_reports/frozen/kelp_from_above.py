"""Kelp in pictures from an aircraft, told from water and rock pixel by pixel.

source: https://markdewijk.nl/misc/2023/04/16/chunking
date:   2023-04-16
seen:   pictures in square chunks were stacked into one long list of pixels, for a classifier: each chunk of the list
        needed all chunks across the picture, and the computation was slow and used much memory.
cause:  the stacked order is row by row over the whole width, so that stacking rechunks everything, and moves it between
        the workers.
cure:   stack the pixels within each chunk, in blocks; their order does not matter.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    marked,
    scaled,
)

NEEDS = ("xarray",)
CLUSTER = TWO_BY_TWO
SIDE = 150
ACROSS = scaled(34)
COLOURS = 6

EXPECTED = Expected(
    cause="stacking rows over the whole width rechunks the picture: each chunk of pixels needs a whole row of chunks",
    place="the line of stack, or that of compute",
    cure="stack within each chunk (map_blocks), or chunks which are as wide as the picture",
    says=r"rechunk|\.stack|\bstack(ing|ed)|reshap|transfer"
    r"|(data|chunks?|arrays?|bytes) (are |is |were )?(moved|sent|fetched)"
    r"|move\w* (the )?(data|chunks)|between (the )?workers|merge",
    places=(*marked(__file__),),
    cures=r"map_blocks|block.?wise|within (each|a) (chunk|block)"
    r"|chunks?.{0,40}(whole|full|wide|along|rows?|dimension|axis)|chunk \w* (differently|along)"
    r"|(avoid|without|no|fewer) .{0,30}(rechunk|stack|reshape|transfer)",
    never={
        COMPUTED_AGAIN: "each chunk is read once",
        LOCK: "no lock is used",
        MORE_WORKERS: "both cores are busy moving chunks",
    },
)


def flown() -> xr.DataArray:
    """Picture of the coast, a chunk for each exposure."""
    side = SIDE * ACROSS
    colours = da.map_blocks(
        exposure, chunks=((SIDE,) * ACROSS, (SIDE,) * ACROSS, (COLOURS,)), dtype="f8", meta=np.empty((0, 0, 0))
    )
    assert colours.shape == (side, side, COLOURS)
    return xr.DataArray(colours, dims=("y", "x", "colour"))


def exposure(block_info=None) -> np.ndarray:
    row, column, _ = block_info[None]["chunk-location"]
    return np.random.default_rng(1000 * row + column).random((SIDE, SIDE, COLOURS))


def kelp(pixels: np.ndarray) -> np.ndarray:
    """How much each pixel looks like kelp."""
    weights = np.array([0.1, 0.7, -0.3, 0.4, -0.2, 0.5])
    return 1 / (1 + np.exp(-(pixels @ weights)))


def kelp_of_block(block: np.ndarray) -> np.ndarray:
    return kelp(block.reshape(-1, block.shape[-1]))[:, None, None]


def bad(client: Client) -> float:
    pixels = flown().stack(pixel=("y", "x")).transpose("pixel", "colour")  # <- here
    looks = pixels.data.map_blocks(kelp, drop_axis=1, dtype="f8")
    return float((looks**2).mean().compute())  # <- here


def good(client: Client) -> float:
    picture = flown().data
    chunks = ((SIDE * SIDE,) * ACROSS, (1,) * ACROSS, (1,))
    looks = picture.map_blocks(kelp_of_block, chunks=chunks, dtype="f8")
    return float((looks**2).mean().compute())
