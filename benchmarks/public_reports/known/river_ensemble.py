"""Statistics of an ensemble of river flows are printed, after the ensemble was persisted.

source: pydata/xarray issue 8901
date:   2024-04-02
seen:   after persist, which the person took to work in place like load, the steps before it show up on the dashboard
        again for each result that is asked for.
cause:  persist returns a new object with the data in memory; the old one, which the script goes on with, is as lazy as
        before, and what was persisted is dropped at once.
cure:   go on with what persist returns.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
import xarray as xr
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("xarray",)
CLUSTER = TWO_BY_ONE
MEMBERS, DAYS, GAUGES = scaled(24), 365 * 4, 60

EXPECTED = Expected(
    cause="the flows (route) are computed again for each statistic, as what persist returned is not used",
    place="flows.persist() in prepared, whose result is dropped; the lines of summary that compute each statistic; or"
    " route, which runs again and again",
    cure="use what persist returns (flows = flows.persist()), or compute all statistics in one call",
    says=r"again|twice|repeated|more than once|\d+ times|several times|recomput|same (work|tasks|keys|data)"
    r"|each (compute"
    r"|statistic|time|call)|not (kept|used|assigned|held)|dropped|released|forgotten|separate comput",
    places=(*marked(__file__), function("prepared"), function("summary"), function("route"), r"persist"),
    cures=r"persist|once\b|together|in one (compute|call|go|computation)|one compute|dask\.compute|keep|reuse|assign"
    r"|hold on",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "there is enough",
    },
)


def route(block_info: dict | None = None) -> np.ndarray:
    """Flow at each gauge: rain through a chain of reservoirs."""
    member = block_info[None]["chunk-location"][0]
    rain = np.random.default_rng(member).gamma(0.4, 5.0, (DAYS, GAUGES))
    flow = np.zeros((1, DAYS, GAUGES))
    for loss in np.linspace(0.02, 0.6, 12):
        store = np.zeros(GAUGES)
        for day in range(DAYS):
            store = store * (1 - loss) + rain[day]
            flow[0, day] += store * loss
    return flow


def ensemble() -> xr.Dataset:
    chunks = ((1,) * MEMBERS, (DAYS,), (GAUGES,))
    flows = da.map_blocks(route, chunks=chunks, dtype=float, meta=np.empty((0, 0, 0)))
    return xr.Dataset({"flow": (("member", "day", "gauge"), flows)})


def prepared() -> xr.Dataset:
    flows = ensemble()
    flows.persist()  # <- here
    return flows


def prepared_and_kept() -> xr.Dataset:
    return ensemble().persist()


def summary(flows: xr.Dataset) -> float:
    """Figures of a bulletin, each of which is printed as it is there."""
    wettest = float(flows["flow"].max())  # <- here
    mean = float(flows["flow"].mean())  # <- here
    lowest = float(flows["flow"].min("day").mean())  # <- here
    spread = float(flows["flow"].std("member").mean())  # <- here
    floods = int((flows["flow"] > mean * 2).sum())  # <- here
    return wettest + mean + lowest + spread + floods


def bad(client: Client) -> float:
    return summary(prepared())


def good(client: Client) -> float:
    return summary(prepared_and_kept())
