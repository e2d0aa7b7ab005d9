"""Runs of an avalanche model on workers that give themselves a short life and are started anew all the time.

source: dask/dask-jobqueue issue 122; of the same kind: dask/dask-jobqueue issue 597, asapdiscovery/asapdiscovery issue
        661
date:   2018-08-13 (issue 597: 2022-11-16; asapdiscovery: 2023-11-29)
seen:   workers come and go during the whole run; what they were at is lost, each new one starts from nothing, and the
        run takes several times as long as the same tasks on workers that stay.
cause:  the lifetime of a worker (its walltime) is a few tasks long. Each life starts with a new process and with the
        preparation of the terrain, and ends in the middle of a task.
cure:   a lifetime that is long against the start of a worker and its tasks, or none.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER: dict[str, Any] = {
    "n_workers": 2,
    "threads_per_worker": 1,
    "lifetime": "4 seconds",  # <- here
    "lifetime_stagger": "500 ms",
    "lifetime_restart": True,
}
GOOD_CLUSTER = TWO_BY_ONE
#: Else a task fails that has lost its worker a few times.
CONFIG = {"distributed.scheduler.allowed-failures": 100}
RELEASES, SIDE, SMOOTHINGS, STEPS = scaled(24), 1_000, scaled(130), scaled(60)

EXPECTED = Expected(
    cause="workers are closed and started anew every four seconds; the time goes into their starts, the preparation"
    " in each of them, and the tasks that were cut off",
    place="the lifetime of the cluster's workers; or the tasks that are run again, and the terrain that is prepared"
    " again",
    cure="a longer lifetime, or none; or a cheaper start of a worker (the terrain from a file)",
    says=r"life-?time|wall-?time|retir"
    r"|workers?\b.{0,80}\b(restart|clos|left|leav|gone|going|die|died|dead|lost|depart|replac|remov|end(ed|s)?\b"
    r"|exit|stopp|shut|new|anew|come|came|join|started)"
    r"|(restart|clos|lost|depart|replac|remov|exit|stopp|new|start\w*|join|death|loss)\w*\b.{0,60}\bworkers?"
    r"|process(es)?\b.{0,60}\b(restart|start|exit|end|replac|anew|new)",
    places=(*marked(__file__), function("terrain"), function("run_out"), r"\blifetime", function("runs")),
    cures=r"life-?time|wall-?time|(keep|longer|long-lived|living|stay|surviv|fewer)\b.{0,60}\b(workers?|restarts?"
    r"|process)|workers?\b.{0,60}\b(stay|keep|longer|surviv|live|restart)|restart|find out|why\b|\blogs?\b"
    r"|prepar\w+\b.{0,60}(once|file|disk|store)|(from|to|on) (a file|disk|storage)",
    never={
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        LONGER_TASKS: "tasks take a third of a second; longer ones would be cut off more often",
        MORE_MEMORY: "there is enough, memory ends no worker",
        SLEEP: "nothing sleeps",
    },
)


@cache
def terrain() -> np.ndarray:
    """Heights of a slope, smoothed; each process prepares them once."""
    rng = np.random.default_rng(7)
    heights = np.linspace(900.0, 0.0, SIDE)[:, None] + 40.0 * rng.standard_normal((SIDE, SIDE))
    for _ in range(SMOOTHINGS):
        heights = (heights + np.roll(heights, 1, 0) + np.roll(heights, 1, 1) + np.roll(heights, -1, 1)) / 4.0
    return heights


def run_out(release: int) -> float:
    """Snow that has come down at the end of a slide from a release area."""
    heights = terrain()
    steepness = np.abs(heights - np.roll(heights, -1, 0))
    share = 0.5 * steepness / (1.0 + steepness)
    snow = np.zeros_like(heights)
    snow[50:150, 30 * release : 30 * release + 200] = 1.0 + release / 10.0
    for _ in range(STEPS):
        sliding = snow * share
        snow += np.roll(sliding, 1, 0) - sliding
    return float(snow[150:].sum())


def runs(client: Client) -> float:
    futures = client.map(run_out, range(RELEASES))  # <- here
    return float(sum(client.gather(futures)))  # <- here


bad = runs
good = runs
