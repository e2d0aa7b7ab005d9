"""Tables of drill cores lie in thousands of partitions, from which a script takes neighbours, pair by pair.

source: dask/dask-expr issue 777 (its comments of 2024-04)
date:   2024-04-30
seen:   a framework that takes frames apart with to_delayed and joins pieces by from_delayed became far slower: even
        one piece of a frame of 30,000 partitions takes long to compute.
cause:  a delayed piece carries the graph of all partitions; each computation of a piece goes through that, on the
        client and on the scheduler, though it needs two tasks of it.
cure:   take partitions from the frame (partitions[...]), which leaves out the others before there is a graph; or
        compute all pieces in one go.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
CORES, PAIRS, LAYERS = 3000, scaled(26), 400
META = pd.DataFrame({"core": pd.Series(dtype=int), "depth": pd.Series(dtype=float), "clay": pd.Series(dtype=float)})

EXPECTED = Expected(
    cause="each pair is a computation whose graph has the tasks of all 3000 partitions, from to_delayed",
    place="the loop with from_delayed and compute(), or the to_delayed before it",
    cure="partitions[...] of the frame, or one computation for all pairs",
    says=r"graph|to_delayed|from_delayed|(build|construct|creat|optimi[sz]|submi|cull)\w*|many (small )?comput\w*"
    r"|\d+ comput\w*|(one|each|every|per) (computation|compute|pair)|one (at a time|by one|after)|in turn|(all"
    r"|thousands of|3,?000|other) (partitions|tasks)|before (anything|the first|it|any task)|(on|in|by) the client"
    r"|client('s)? .{0,30}(busy|comput|Python|own)",
    places=(*marked(__file__), function("pairs_from_pieces"), function("to_delayed"), function("from_delayed")),
    cures=r"partitions\[|get_partition|partitions?\b|together|one (compute|computation|go)|single compute|once\b"
    r"|dask\.compute|fewer|smaller graph|map_partitions|persist|without (to_|from_)?delayed|instead of|optimi[sz]",
    never={
        MORE_WORKERS: "workers wait for the client",
        MORE_MEMORY: "tables are small",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
    },
)


def table(core: int) -> pd.DataFrame:
    depths = np.arange(LAYERS) * 0.1
    return pd.DataFrame({"core": core, "depth": depths, "clay": np.sin(depths * (1 + core % 13)) ** 2})


def likeness(both: pd.DataFrame) -> float:
    """How much two neighbours are alike."""
    wide = both.pivot_table(index="depth", columns="core", values="clay")
    return float(np.corrcoef(wide.to_numpy().T)[0, 1])


def pairs() -> list[tuple[int, int]]:
    return [(at * 97 % (CORES - 1), at * 97 % (CORES - 1) + 1) for at in range(1, PAIRS + 1)]


def pairs_from_pieces(frame: dd.DataFrame) -> float:
    pieces = frame.to_delayed()  # <- here
    total = 0.0
    for left, right in pairs():
        both = dd.from_delayed([pieces[left], pieces[right]], meta=META)  # <- here
        total += likeness(both.compute())  # <- here
    return total


def bad(client: Client) -> float:
    return pairs_from_pieces(dd.from_map(table, range(CORES), meta=META))  # <- here


def good(client: Client) -> float:
    frame = dd.from_map(table, range(CORES), meta=META)
    return float(sum(likeness(frame.partitions[[left, right]].compute()) for left, right in pairs()))
