"""Functions of map_partitions are called on the client first, to find out the columns of their results.

source: JDASoftwareGroup/kartothek pull request 353; like cases: dask/distributed issue 4823, dask/dask issue 1521
date:   2020-09-30 (the like cases 2021-05-14 and 2016-09-03)
seen:   a function runs more often than there are partitions, and before anything is computed; where it is expensive,
        the program stands still while it builds the graph, and no worker does anything.
cause:  no meta is given, so Dask calls the function in the client's process with a tiny made-up DataFrame. What the
        function does whatever the number of rows (opening, training, simulating) is done in full, one step after the
        other.
cure:   pass meta=, the (empty) result with the right columns.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
STEPS = scaled(12)
PARTITIONS = 4
ROWS = 20_000

EXPECTED = Expected(
    cause="the client calls the function of every map_partitions itself, to infer meta, while it builds the graph",
    place="the line of map_partitions, or the function, simulate, on the client",
    cure="meta=",
    says=r"\bmeta(data)?\b|\binfer|emulat|client.{0,60}(itself|busy|works?|comput|spen[dt]s?|process|calls|builds"
    r"|built)|(on|in|by) the (client|main|own|calling)\b|(graph|computation).{0,30}\b(built|building|construction"
    r"|defin|making)|build\w* (of )?(the |a )?graph|workers? .{0,40}(idle|nothing|wait)|nothing (was |is )?(to do"
    r"|known|submitted)|before .{0,40}(submit|sent|starts?|computed)",
    places=(*marked(__file__), function("simulate"), function("forecast"), r"emulate|_meta\b"),
    cures=r"\bmeta\b",
    never={
        LONGER_TASKS: "tasks take seconds",
        HOLDS_GIL: "one thread a worker, and the work needs no GIL",
        r"(?i)larger than[^.\n]{0,40}graph|graph is (too )?large|too many tasks": "the graph has few tasks",
    },
)


def table(number: int) -> pd.DataFrame:
    return pd.DataFrame({"demand": np.arange(ROWS) % (number + 2)})


def simulate(frame: pd.DataFrame, step: int) -> pd.DataFrame:
    compute_for(0.3)  # as long for two rows as for twenty thousand
    return frame.assign(demand=(frame["demand"] * (step + 3) + 1) % 101)


def forecast(frame: dd.DataFrame, meta: pd.DataFrame | None = None) -> float:
    known = {} if meta is None else {"meta": meta}
    for step in range(STEPS):
        frame = frame.map_partitions(simulate, step, **known)  # <- here
    return float(frame["demand"].sum().compute())


def bad(client: Client) -> float:
    return forecast(dd.from_map(table, range(PARTITIONS)))  # <- here


def good(client: Client) -> float:
    return forecast(dd.from_map(table, range(PARTITIONS)), pd.DataFrame({"demand": np.empty(0, int)}))
