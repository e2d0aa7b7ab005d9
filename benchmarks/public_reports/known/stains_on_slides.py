"""Positions of the few stained spots are taken from large scans of slides.

source: dask/dask issue 10080; how it is done inside: dask/dask pull request 2539
date:   2023-03-17 (pull request 2539: 2017-07-24)
seen:   to list where an array is below zero fills the memory, even though there is no such place at all.
cause:  da.argwhere does not look chunk by chunk: it makes the indices of all the elements (int64 for each dimension),
        brings them and the mask into the order of a flat array (a rechunk) and throws nearly all away afterwards.
cure:   np.argwhere (or np.nonzero) of each chunk by itself, plus where the chunk begins.
"""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SLIDES, SIDE, TILE = scaled(13), 3_600, 1_200
STAINED = 4.6

EXPECTED = Expected(
    cause="da.argwhere makes indices of every pixel, reshapes them to one flat array, and drops nearly all of them",
    place="da.argwhere in positions_by_array",
    cure="np.argwhere or np.nonzero in each chunk, with the offset of the chunk added",
    says=r"argwhere|\bnonzero|(indices|index(es)?|coordinates|positions)\W+(\w+\W+){0,6}(all|each|every|whole|full|pixel"
    r"|element|cell)|(all|each|every|whole|full)\W+(\w+\W+){0,4}(indices|index(es)?|coordinates)|flatten|\bravel"
    r"|reshap|rechunk|compress\b|(most|nearly all|almost all)\W+(\w+\W+){0,6}(thrown|dropped|discarded|not needed)",
    places=(*marked(__file__), function("positions_by_array"), r"argwhere|ravel|reshape|rechunk|compress"),
    cures=r"map_blocks|(each|every|per|by|single) (chunk|block|tile)|(chunk|block|tile)(-| )?wise|chunk by chunk"
    r"|to_delayed|block by block|np\.(argwhere|(flat)?nonzero)|avoid (the )?(flatten|ravel|reshap|rechunk|argwhere)"
    r"|(without|instead of) (\w+ )?(flatten|ravel|reshap|rechunk|argwhere|da\.argwhere)|along the (first|other)",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "chunks are of megabytes",
        COMPUTED_AGAIN: "there is one computation",
        LOCK: "there is none",
    },
)


def scans() -> da.Array:
    """Darkness of the slides, in tiles."""
    noise = da.random.default_rng(10080)
    darkness: da.Array = noise.standard_normal((SLIDES, SIDE, SIDE), chunks=(1, TILE, TILE), dtype=np.float32)
    return darkness


def digest(positions: np.ndarray) -> float:
    """Number that tells lists of positions apart, in whatever order."""
    return float((positions @ np.array([1.0, 0.5, 0.25])).sum() + len(positions))


def positions_by_array(stained: da.Array) -> np.ndarray:
    return np.asarray(da.argwhere(stained).compute())  # <- here


def positions_in_tile(stained: np.ndarray, begins: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.argwhere(stained) + np.array(begins))


def positions_by_tile(stained: da.Array) -> np.ndarray:
    """Positions of the stains, found in each tile by itself."""
    starts = [np.cumsum((0, *sizes[:-1])) for sizes in stained.chunks]
    tiles = stained.to_delayed()
    found = [
        dask.delayed(positions_in_tile)(tiles[at], tuple(int(start[k]) for start, k in zip(starts, at, strict=True)))
        for at in np.ndindex(*tiles.shape)
    ]
    return np.concatenate(dask.compute(*found))


def bad(client: Client) -> float:
    return digest(positions_by_array(scans() > STAINED))


def good(client: Client) -> float:
    return digest(positions_by_tile(scans() > STAINED))
