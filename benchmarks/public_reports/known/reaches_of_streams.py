"""Reaches of streams are followed row by row, with iterrows, in tasks.

source: mwtoews/surface-water-network issue 13
date:   2021-04-21
seen:   loops over rows of tables of a network of streams are much slower than they need be.
cause:  iterrows makes a Series of pandas for each row.
cure:   itertuples, or the columns that are used (or no loop at all).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
NEEDS = ("pandas",)
CATCHMENTS = scaled(56)
REACHES = 15_000

EXPECTED = Expected(
    cause="iterrows makes a Series for each row, in Python that holds the GIL",
    place="function drop_of: the loop over iterrows()",
    cure="itertuples(), columns as arrays or lists, or array operations",
    says=r"iterrows|row by row|(each|every|per) row|series\b|python (loop|code|function)|\bGIL\b|loop over|drop_of"
    r"|vectori[sz]",
    places=(*marked(__file__), function("drop_of")),
    cures=r"itertuples|vectori[sz]|columns?|arrays?|to_dict|zip|numpy|numba|compiled|process",
    never={LONGER_TASKS: "the tasks are long", MORE_MEMORY: "memory is ample"},
)


def network_of(catchment: int) -> pd.DataFrame:
    """Reaches with their lengths, slopes, and the reach which each flows to."""
    rng = np.random.default_rng(catchment)
    below = np.maximum(np.arange(REACHES) - rng.integers(1, 9, REACHES), 0)
    return pd.DataFrame({"below": below, "length": rng.random(REACHES) * 900, "slope": rng.random(REACHES) / 40})


def drop_of(catchment: int) -> float:
    """Mean drop from the reaches to the mouth, reach by reach upstream."""
    drops = [0.0] * REACHES
    for number, reach in network_of(catchment).iterrows():  # <- here
        drops[number] = drops[int(reach["below"])] + reach["length"] * reach["slope"]  # <- here
    return sum(drops) / REACHES


def drop_by_tuples(catchment: int) -> float:
    drops = [0.0] * REACHES
    for number, below, length, slope in network_of(catchment).itertuples():
        drops[number] = drops[below] + length * slope
    return sum(drops) / REACHES


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(drop_of, range(CATCHMENTS)))))  # <- here


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(drop_by_tuples, range(CATCHMENTS)))))
