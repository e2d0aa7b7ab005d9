"""Pixels of a scene are put in one long column, as a classifier wants them, and are told green land from other land.

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
TILES, PATCH, BANDS = scaled(17), 72, 4
TILE = 10 * PATCH

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
    patch = np.random.default_rng(block_id).random((BANDS, PATCH, PATCH), dtype=np.float32)
    return np.tile(patch, (1, TILE // PATCH, TILE // PATCH))


def scene() -> da.Array:
    chunks = ((BANDS,), (TILE,) * TILES, (TILE,) * TILES)
    return da.map_blocks(tile, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0, 0), np.float32))


def is_green(pixels: np.ndarray) -> np.ndarray:
    """True for pixels with much more near infrared than red (the bands are the first dimension)."""
    red, near = pixels[2], pixels[3]
    return near - red > (near + red) * np.float32(0.3)


def column_of_pixels(whole: da.Array) -> da.Array:
    return whole.reshape(BANDS, -1)  # <- here


def cover_in_columns(whole: da.Array) -> float:
    green = column_of_pixels(whole).map_blocks(is_green, drop_axis=0, dtype=bool)  # <- here
    return float(green.sum().compute())  # <- here


def cover_in_tiles(whole: da.Array) -> float:
    green = whole.map_blocks(is_green, drop_axis=0, dtype=bool)
    return float(green.sum().compute())


def bad(client: Client) -> float:
    return cover_in_columns(scene())  # <- here


def good(client: Client) -> float:
    return cover_in_tiles(scene())
