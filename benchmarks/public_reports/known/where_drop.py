"""Parts of an array are chosen with xarray's where(..., drop=True).

source: pydata/xarray issue 7516
date:   2023-02-08
seen:   ds.where(condition, drop=True) takes very long before anything is asked for, and the dashboard shows the same
        tasks again and again.
cause:  to know which coordinates to drop, the condition has to be computed before, and with it all that it is made from
        (xarray did so on its own for each dimension; today it asks for a condition that is computed): the data are then
        read once more for the result, and the mask travels to the client and back.
cure:   leave drop=True out, and the condition lazy (what is reduced afterwards skips the missing values anyway), or
        persist what both need.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray",)
CLUSTER = TWO_BY_ONE
TILES = scaled(24)
SHAPE = (30, 300, 300)

EXPECTED = Expected(
    cause="the condition is computed for where(..., drop=True), and with it everything that is read and"
    " decoded, before the"
    " result is: the same tiles are loaded twice (and a mask as long as the data goes to the client and"
    " back in the graph)",
    place="the compute() of the condition, the where() with drop=True; the tasks that load tiles",
    cure="where() with the lazy condition and without drop, or persist the data once",
    says=r"again|twice|(two|three|several|many|\d+(\.\d+)?) times|more than once|repeat|re-?(comput|read|load)"
    r"|each comput"
    r"|same (task|data|work|tile|result|key)|drop=True|\beager|where\(|\bmask|large (graph|object|array)"
    r"|graph (of|with)|in the graph",
    places=(*marked(__file__), function("tile"), function("bad"), r"\bwhere\b"),
    cures=r"persist|\bonce\b|without drop|drop=True|drop=False|leave out|\.load\(|keep (the|its|their) results?"
    r"|one compute"
    r"|a single compute|together|laz(y|ily)|cache|reuse|re-use|without (the |a )?compute|in one go",
    never={
        MORE_WORKERS: "the work is needless",
        LONGER_TASKS: "a task takes some tenths of a second",
    },
)


def prepare() -> None:
    for number in range(TILES):
        rng = np.random.default_rng(number)
        values = np.cumsum(rng.integers(-3, 4, SHAPE, dtype="int16"), axis=0, dtype="int16")
        np.savez_compressed(folder("tiles") / f"{number}.npz", values=values)


def tile(block_info=None) -> np.ndarray:
    number = block_info[None]["chunk-location"][0]
    with np.load(folder("tiles") / f"{number}.npz") as file:
        values = file["values"] * 0.1
    return np.sqrt(np.abs(values)) + np.arctan(values)


def heat() -> xr.DataArray:
    times, rows, columns = SHAPE
    chunks = ((times,) * TILES, (rows,), (columns,))
    data = da.map_blocks(tile, chunks=chunks, dtype=float, meta=np.empty((0, 0, 0)))
    return xr.DataArray(data, dims=("time", "y", "x"), name="heat")


def bad(client: Client) -> float:
    field = heat()
    condition = (field > 1.2).compute()  # <- here
    warm = field.where(condition, drop=True)  # <- here
    return float(warm.mean().compute())  # <- here


def good(client: Client) -> float:
    field = heat()
    warm = field.where(field > 1.2)
    return float(warm.mean().compute())
