"""The longest dry spell of each pixel is found by stacking the pixels and mapping a function over their groups.

source: pydata/xarray issue 2249
date:   2018-06-25
seen:   a function for one series of rain is applied to a stack of 90,000 pixels by groupby and apply; it takes so long
        that the person gave up on the whole field.
cause:  for each pixel xarray makes a group, an array with its coordinates, and calls the Python function, which makes
        further labelled arrays: milliseconds for each pixel, for sums of a few numbers.
cure:   count the spells of all pixels of a tile at once along the time axis, with a function on plain arrays.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray",)
CLUSTER = TWO_BY_ONE
DAYS, SIDE, TILES = 365, 24, scaled(12)

EXPECTED = Expected(
    cause="a Python function is called for each pixel by xarray's groupby over the stacked pixels; nearly all the time"
    " is overhead of xarray and Python for each little group",
    place="longest_spell or spells_of_tile (the stack, groupby and map), in the tasks",
    cure="work on the whole tile at once (plain numpy along time), vectorised over the pixels",
    says=r"group|pixel|one by one|one at a time|(by|each|every|per|for) (row|column|series|slice|pixel|element|group"
    r"|point|value)|Python (loop|for|code|bytecode|by|function|object)|in Python\b|\bGIL\b|interpret|overhead"
    r"|1-?d\b|stack",
    places=(*marked(__file__), function("longest_spell"), function("spells_of_tile"), r"groupby"),
    cures=r"vectori[sz]|whole (array|block|axis|tile|chunk)|at once|numpy|plain arrays?|apply_ufunc|numba|compiled"
    r"|instead of|without (a )?(loop|groupby)|cython|flox",
    never={
        LONGER_TASKS: "a task takes a second",
        MORE_WORKERS: "both cores are busy",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "there is enough",
    },
)


def rain(tile: int) -> xr.DataArray:
    values = np.random.default_rng(tile).gamma(0.3, 6.0, (DAYS, SIDE, SIDE))
    axes = {"time": np.arange(DAYS), "y": np.arange(SIDE), "x": np.arange(SIDE) + tile * SIDE}
    return xr.DataArray(values, coords=axes, dims=("time", "y", "x"))


def longest_spell(series: xr.DataArray) -> xr.DataArray:
    dry = (series < 1.0).squeeze()
    spell = (~dry).cumsum("time")
    lengths = np.bincount(spell.where(dry, -1).astype(int).values + 1)[1:]
    return xr.DataArray(lengths.max() if len(lengths) else 0)


def spells_of_tile(tile: int) -> np.ndarray:
    pixels = rain(tile).stack(pixel=("y", "x"))
    return pixels.groupby("pixel").map(longest_spell).values.astype(float)  # <- here


def spells_of_whole_tile(tile: int) -> np.ndarray:
    dry = rain(tile).values < 1.0
    longest = current = np.zeros(dry.shape[1:], int)
    for day in dry:
        current = (current + 1) * day
        longest = np.maximum(longest, current)
    return longest.ravel().astype(float)


def mean_spell(find: object) -> float:
    def block(block_info: dict | None = None) -> np.ndarray:
        return find(block_info[None]["chunk-location"][0])

    chunks = ((SIDE * SIDE,) * TILES,)
    spells = da.map_blocks(block, chunks=chunks, dtype=float, meta=np.empty(0))
    return float(spells.mean().compute())  # <- here


def bad(client: Client) -> float:
    return mean_spell(spells_of_tile)


def good(client: Client) -> float:
    return mean_spell(spells_of_whole_tile)
