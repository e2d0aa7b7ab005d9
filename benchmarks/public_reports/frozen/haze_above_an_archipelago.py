"""How much light haze lets through above an archipelago, column by column.

source: earth-system-radiation/pyRTE-RRTMGP issue 193
date:   2025-04-07
seen:   the optics of clouds on a grid, computed by a function for lists of columns, spent most of the time and of the
        memory on reshaping and rechunking, not on the optics.
cause:  the dimensions of the grid are stacked into one of columns, and unstacked again: for both, chunks that are
        squares of the grid are cut up and put together anew, between all workers.
cure:   give the function each chunk as it is (map_blocks), and reshape within it.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("xarray",)
CLUSTER = TWO_BY_TWO
ISLES = 4
SIDE = scaled(24) * 20
CHUNK = max(SIDE // 12, 1)
LAYERS = 24

EXPECTED = Expected(
    cause="stack and unstack cut up all chunks and merge them anew: rechunking, reshaping and transfer",
    place="the lines of stack and unstack, or that which computes",
    cure="apply the function to each chunk as it is, and reshape in it",
    says=r"re-?chunk\w*|reshap\w*|\bstack\w*|unstack\w*|cut\w* up|(merg|split)\w* .{0,30}chunks|chunks .{0,40}(merg"
    r"|split|cut)\w*"
    r"|(mov|send|transfer|exchang)\w* .{0,50}(data|chunks|workers)|transfers?|small\b.{0,30}tasks",
    places=(*marked(__file__),),
    cures=r"map_blocks|(without|avoid|leave out|skip)\w* .{0,30}(re-?chunk|reshap|stack)\w*|apply_ufunc|blockwise"
    r"|(each|every|per) (chunk|block)|align|as (it is|they are)|chunks? (along|in|by) (whole )?(rows|one dim)",
    never={
        COMPUTED_AGAIN: "each column is computed once",
        MORE_WORKERS: "they would exchange even more",
    },
)


def atmosphere():
    """Droplets in each layer above each point of the grid."""
    import dask.array as da
    import xarray as xr

    shape = (ISLES, SIDE, SIDE, LAYERS)
    water = da.random.default_rng(2).gamma(1.5, 0.2, shape, chunks=(1, CHUNK, CHUNK, -1))
    return xr.DataArray(water.astype("float32"), dims=("isle", "y", "x", "layer"), name="water")


def transmittance(columns: np.ndarray) -> np.ndarray:
    """Share of the light that gets below each layer, for a list of columns."""
    depth = 1.6 * columns ** np.float32(0.7)
    return np.exp(-np.cumsum(depth, axis=-1) / np.float32(8))


def transmittance_of_block(block: np.ndarray) -> np.ndarray:
    return transmittance(block.reshape(-1, block.shape[-1])).reshape(block.shape)


def bad(client: Client) -> float:
    import xarray as xr

    columns = atmosphere().stack(site=("isle", "y", "x")).transpose("site", "layer")  # <- here
    light = xr.apply_ufunc(transmittance, columns, dask="parallelized", output_dtypes=["float32"])
    light = light.unstack("site").transpose("isle", "y", "x", "layer")  # <- here
    light = light.chunk({"isle": 1, "y": CHUNK, "x": CHUNK, "layer": -1})  # <- here
    return float(light.std(("y", "x")).mean().compute())  # <- here


def good(client: Client) -> float:
    import xarray as xr

    light = xr.apply_ufunc(transmittance_of_block, atmosphere(), dask="parallelized", output_dtypes=["float32"])
    return float(light.std(("y", "x")).mean().compute())
