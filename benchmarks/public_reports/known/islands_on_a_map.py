"""The islands in the tiles of a map, as one table.

source: dask/dask issue 7851
date:   2021-07-01
seen:   a table made of the blocks of an image, by from_delayed for each block in a loop, took minutes and much memory
        before anything ran, and four times as long with twice as many blocks.
cause:  each from_delayed makes a table of its own, which brings along the graph of the whole image, and all these are
        merged again by the concatenation: the client's work grows with the square of the number of blocks.
cure:   call from_delayed once, with the list of all delayed tables.
"""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
TILES = scaled(900)
SIDE = 200

EXPECTED = Expected(
    cause="the client spends its time making the graph: a table for each block, from_delayed in a loop, then merged",
    place="the line of from_delayed, or that of concat and compute",
    cure="one from_delayed with all tables at once",
    says=r"\bgraphs?\b|(client|script).{0,60}(busy|build|prepar|before)|before (any|the first)|from_delayed"
    r"|(build|optimi[sz])\w* (the |a )?(graph|expression|collection)",
    places=(*marked(__file__),),
    cures=r"from_delayed|at once|\bonce\b|all (blocks|tables|parts|delayed)|from_map|map_blocks"
    r"|fewer|larger|smaller graph",
    never={
        COMPUTED_AGAIN: "each tile is made once",
        MORE_WORKERS: "the workers have nothing to do",
    },
)


def islands(tile: np.ndarray) -> pd.DataFrame:
    """A row for each dry point of the tile."""
    rows, columns = np.nonzero(tile > 0.95)
    return pd.DataFrame({"row": rows, "column": columns, "height": tile[rows, columns]})


def tiles() -> list:
    image = da.random.default_rng(5).random((TILES * SIDE, SIDE), chunks=SIDE)
    return list(image.to_delayed().ravel())


META = islands(np.zeros((2, 2)))


def bad(client: Client) -> float:
    tables = []
    for tile in tiles():
        table = dask.delayed(islands)(tile)
        tables.append(dd.from_delayed([table], meta=META))  # <- here
    return float(dd.concat(tables)["height"].sum().compute())  # <- here


def good(client: Client) -> float:
    tables = [dask.delayed(islands)(tile) for tile in tiles()]
    return float(dd.from_delayed(tables, meta=META)["height"].sum().compute())
