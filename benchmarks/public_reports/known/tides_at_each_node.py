"""Rise of the sea at each node of a model, by apply_along_axis.

source: kuchaale/X-regression issue 4, and the question on Stack Overflow that it points to (47314800, "dask performance
        apply along axis")
date:   2017-11-15 (issue: 2018-01-08)
seen:   a fit along time at each point of a large cube takes as long with Dask as without, or longer.
cause:  a Python function is called for each of many short series, where one call could do a whole chunk; it holds the
        GIL, so threads do not help.
cure:   fit all series of a chunk at once.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
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
HOURS = 120
NODES = scaled(2_400)
STRIPS = 8

EXPECTED = Expected(
    cause="polyfit is called for each series of each chunk, one by one, in Python that holds the GIL",
    place="function rise_of, or the apply_along_axis() that calls it",
    cure="fit all series of a chunk in one call",
    says=r"apply_along_axis|polyfit|vectori[sz]|one (by one|at a time)"
    r"|(each|every|per) (series|row|node|call|slice|element)"
    r"|python (loop|code|function)|called (very )?(many|\d)|(many|thousands|\d) (small )?calls|holds? the GIL|\bGIL\b"
    r"|rise_of|lstsq",
    places=(*marked(__file__), function("rise_of")),
    cures=r"vectori[sz]|at once|whole (chunk|block|array)|(all|many) (the )?(series|rows|nodes|columns)|map_blocks"
    r"|one call"
    r"|matrix|numba|compiled|batch|array operations|processes",
    never={LONGER_TASKS: "the tasks are long", MORE_MEMORY: "memory is ample"},
)


def levels() -> da.Array:
    source = da.random.RandomState(3).random_sample((HOURS, NODES, STRIPS * 20), chunks=(HOURS, NODES, 20))
    rising: da.Array = source + np.linspace(0, 1, HOURS)[:, None, None]
    return rising


def rise_of(series: np.ndarray) -> float:
    """Slope of a line through the levels of a node."""
    return float(np.polyfit(np.arange(HOURS), series, 1)[0])  # <- here


def rises_of(block: np.ndarray) -> np.ndarray:
    """The same for all nodes of a block."""
    flat = block.reshape(HOURS, -1)
    return np.asarray(np.polyfit(np.arange(HOURS), flat, 1)[0].reshape(block.shape[1:]))


def bad(client: Client) -> float:
    rises = da.apply_along_axis(rise_of, 0, levels(), dtype=float, shape=())  # <- here
    return float(rises.sum().compute())  # <- here


def good(client: Client) -> float:
    rises = da.map_blocks(rises_of, levels(), drop_axis=0, dtype=float)
    return float(rises.sum().compute())
