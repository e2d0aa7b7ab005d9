"""Pixels of a scene are put in one long column, as a classifier wants them, and get the land cover they are nearest to.

source: pydata/xarray issue 5754; of the same kind: pydata/xarray issue 4389, dask/dask issue 3650, and a blog,
        markdewijk.nl/misc/2023/04/16/chunking
date:   2021-09-01 (issue 4389: 2020-08-30; issue 3650: 2018-06-21; the blog: 2023-04-16)
seen:   to stack two dimensions makes chunks of gigabytes, or changes their number; each chunk of the result depends on
        a whole row of chunks, though a classifier looks at one pixel at a time.
cause:  the column is in the order of the rows of the whole scene, so a row has to be put together from all tiles beside
        each other: every tile is cut into strips, which are sent round and joined again.
cure:   stack within each tile (map_blocks), in the order of the tiles, as the order of pixels does not matter here.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
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

CLUSTER = TWO_BY_ONE
TILES, TILE, BANDS = scaled(36), 120, 4
CENTRES = np.random.default_rng(0).random((3, BANDS), dtype=np.float32)

EXPECTED = Expected(
    cause="reshape joins rows of the scene from all tiles beside each other: tiles are cut into strips, which are moved"
    " between workers and put together again",
    place="the reshape in column_of_pixels, or the computation in cover_in_columns",
    cure="reshape within each tile (map_blocks), or choose chunks that have whole rows",
    says=r"rechunk(s|ed|ing)\b|(re)?(shap|stack)(es|s|ing|ed)\b.{0,80}(chunks|moves?\b|cuts?\b|splits?\b|tasks)"
    r"|(cut|split|sliced|taken) (in|into|up|apart|at|along)\b|strips|pieces"
    r"|(moved?|sent|transfer\w*|sends?|moves|moving|communicat\w+|shuffl\w+|network)\b"
    r"|(small|short|tiny|many)\W+(\w+\W+){0,3}(tasks|chunks)|(tasks|chunks)\W+(\w+\W+){0,4}(small|short|tiny)"
    r"|order of (the )?(pixels|rows)",
    places=(
        *marked(__file__),
        function("column_of_pixels"),
        function("cover_in_columns"),
        function("reshape"),
        r"rechunk",
    ),
    cures=r"chunks?\b|blocks?\b|tiles?\b|reshape|rechunk|whole rows|without (moving|stacking)|fewer|larger|longer",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "more of them have more to send each other",
        LOCK: "there is none",
    },
)


def tile(block_id: tuple[int, int, int] = (0, 0, 0)) -> np.ndarray:
    """Reflectances of a tile."""
    return np.random.default_rng(block_id).random((BANDS, TILE, TILE), dtype=np.float32)


def scene() -> da.Array:
    chunks = ((BANDS,), (TILE,) * TILES, (TILE,) * TILES)
    return da.map_blocks(tile, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0, 0), np.float32))


def nearest(pixels: np.ndarray) -> np.ndarray:
    """Number of the nearest centre for each pixel (the bands are the first dimension)."""
    distances = [((pixels - centre[:, None]) ** 2).sum(axis=0) for centre in CENTRES]
    return np.argmin(distances, axis=0)


def nearest_in_tile(pixels: np.ndarray) -> np.ndarray:
    return nearest(pixels.reshape(BANDS, -1)).reshape(pixels.shape[1:])


def column_of_pixels(whole: da.Array) -> da.Array:
    return whole.reshape(BANDS, -1)  # <- here


def cover_in_columns(whole: da.Array) -> float:
    classes = column_of_pixels(whole).map_blocks(nearest, drop_axis=0, dtype=np.int64)  # <- here
    return float(classes.sum().compute())  # <- here


def cover_in_tiles(whole: da.Array) -> float:
    classes = whole.map_blocks(nearest_in_tile, drop_axis=0, dtype=np.int64)
    return float(classes.sum().compute())


def bad(client: Client) -> float:
    return cover_in_columns(scene())  # <- here


def good(client: Client) -> float:
    return cover_in_tiles(scene())
