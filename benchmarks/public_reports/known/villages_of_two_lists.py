"""Travel times between the villages of two lists, cut out of a big table pair by pair.

source: dask/dask issue 11018
date:   2024-03-23
seen:   rows and columns of a big chunked array are selected at the same time with vindex, by an open mesh of both
        lists. It takes much longer, and much more memory, than first the rows and then the columns.
cause:  vindex selects single points: the mesh is expanded to a pair of numbers for each point of the result, which are
        sorted by chunk, picked one by one and put back in their places.
cure:   index the rows first, then the columns, which are slices of lists along one axis each.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
VILLAGES, CHUNK = 8_000, 1_000
CHOSEN = scaled(5_000)

EXPECTED = Expected(
    cause="each of the millions of points is selected on its own, with its two numbers, instead of whole rows and"
    " columns",
    place="the selection with vindex, or the computation of it",
    cure="index the rows, then the columns",
    says=r"vindex|index|select|slic|pick|point|element|(big|large) graph|graph\b.{0,40}(big|large|MB|MiB|size|build)"
    r"|vectori[sz]ed",
    places=(*marked(__file__), r"vindex"),
    cures=r"rows?\b.{0,60}\bcolumns?|(one|each) (axis|dimension)|axis|slice|x\[|\[:, ?|orthogonal|outer|index|vindex"
    r"|\btake\b|blocks?",
    never={
        LONGER_TASKS: "the chunks are as large as they should be, and the points the same",
        MORE_WORKERS: "most of it is done by the client, or in one task",
        MORE_MEMORY: "what is wanted needs little memory",
        LOCK: "no lock is held by anybody",
    },
)


def minutes(block_info: dict[Any, Any] | None = None) -> np.ndarray:
    """Travel times from the villages of one block to those of another."""
    (first, last), (left, right) = block_info[None]["array-location"] if block_info else ((0, 1), (0, 1))
    east = np.arange(first, last)[:, None]
    west = np.arange(left, right)[None, :]
    values: np.ndarray = np.hypot(east % 97 - west % 97, east % 89 - west % 89) * 1.5
    return values


def table() -> da.Array:
    blocks = (CHUNK,) * (VILLAGES // CHUNK)
    times: da.Array = da.map_blocks(minutes, chunks=(blocks, blocks), dtype=float, meta=np.empty((0, 0)))
    return times


def lists() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    return (
        np.sort(rng.choice(VILLAGES, CHOSEN, replace=False)),
        np.sort(rng.choice(VILLAGES, CHOSEN, replace=False)),
    )


def bad(client: Client) -> float:
    homes, markets = lists()
    times = table().vindex[np.ix_(homes, markets)]  # <- here
    return float(times.sum().compute())  # <- here


def good(client: Client) -> float:
    homes, markets = lists()
    times = table()[homes][:, markets]
    return float(times.sum().compute())
