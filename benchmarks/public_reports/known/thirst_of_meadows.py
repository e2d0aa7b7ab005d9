"""For each spot of a meadow, the thirst of the air in each year is ranked among all years.

source: monocongo/climate_indices issue 942 and pull request 977
date:   2026-09-16
seen:   an index of drought on a grid is computed with 3306 calls for a small reference grid, one for each cell, within
        the blocks of Dask as well.
cause:  ``apply_ufunc(vectorize=True)`` calls a function of a single series for every cell: Python and NumPy calls for a
        few dozen values each.
cure:   a function that takes a whole block, and works along its axis of years (``vectorize=False``).
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, LONGER_TASKS, TWO_BY_TWO, Expected, marked, scaled

NEEDS = ("xarray",)
CLUSTER = TWO_BY_TWO
YEARS = 30
SPOTS = scaled(130)

EXPECTED = Expected(
    cause="a Python function is called for each of the cells (vectorize=True), which holds the GIL",
    place="apply_ufunc, or the function ranks",
    cure="a function that works on whole blocks of cells at once",
    says=r"(each|every|per|single|one) (cell|value|element|row|series|point|item)|cell by cell|\bGIL\b|vectori[sz]e"
    r"|Python (code|loop|function|calls)|pure Python|many (small |short )?calls|loop\w* (over|in) Python",
    places=(*marked(__file__), r"\branks\b", r"vectorize", r"\bthirst\b"),
    cures=r"whole (blocks?|arrays?|chunks?)|blocks?[^.]{0,20}at once|vectori[sz]|along (an|the|its) axis"
    r"|array operations"
    r"|NumPy|numba|compiled|at once|fewer calls",
    never={
        LONGER_TASKS: "tasks of some tenths of a second are long enough",
        COMPUTED_AGAIN: "everything is computed once",
    },
)


def ranks(series: np.ndarray) -> np.ndarray:
    """Share of years that each year of a series is above, as a plotting position."""
    above = [np.sum(series < value) for value in series]  # <- here
    return (np.array(above) + 0.67) / (len(series) + 0.33)


def ranks_of_block(block: np.ndarray) -> np.ndarray:
    above = [np.sum(block < block[..., year, None], axis=-1) for year in range(block.shape[-1])]
    return (np.stack(above, axis=-1) + 0.67) / (block.shape[-1] + 0.33)


def demand() -> xr.DataArray:
    """Water that the air asked for in each year."""
    values = da.random.default_rng(23).gamma(3.0, 1.0, (SPOTS, 900, YEARS), chunks=(-(-SPOTS // 8), 900, YEARS))
    return xr.DataArray(values, dims=("y", "x", "year"))


def thirst(of_years, whole: bool) -> float:
    dims = {"input_core_dims": [["year"]], "output_core_dims": [["year"]]}
    ranked = xr.apply_ufunc(  # <- here
        of_years, demand(), **dims, vectorize=not whole, dask="parallelized", output_dtypes=["f8"]
    )
    weights = xr.DataArray(np.linspace(0, 1, YEARS), dims="year")
    return float((ranked * weights).mean().compute())  # <- here


def bad(client: Client) -> float:
    return thirst(ranks, whole=False)


def good(client: Client) -> float:
    return thirst(ranks_of_block, whole=True)
