"""Avalanches of a Monte Carlo study are set up, run and measured: three steps, each for all cases.

source: dask/distributed issue 7066
date:   2022-09-25
seen:   cases of a Monte Carlo study go through three steps, each with a compute of its own. Between steps workers do
        nothing for seconds, in the time line as white gaps that are longer than the work.
cause:  each compute brings all results to the script, and the next one sends them back within a new graph: transfers
        and packing happen when no task can run.
cure:   steps as one chain for each case, and one compute at the end (or persist, so that results stay on workers).

Here a case is an avalanche, whose snow is a list of lumps.
"""

from __future__ import annotations

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CASES = scaled(100)
LUMPS = 5_000

EXPECTED = Expected(
    cause="after each step all results come to the script, and go back to workers in the graph of the next one",
    place="the three computes of bad, or the steps whose results travel",
    cure="one chain of steps for each case, and one compute at the end",
    says=r"(gather|collect|transfer|mov|download|brought|bring|sent|sends?\b|come|travel|copied).{0,80}(client|script"
    r"|main process|back|graph|between|your process)|(large|big|huge|heavy) (\w+ )?(graphs?|objects?|arguments?|inputs?"
    r"|results?|messages?)|graph.{0,60}(large|big|\bMB\b|\bMiB\b|\bGB\b|megabytes|size)|pickl|seriali[sz]|(workers?"
    r"|cluster).{0,60}(idle|nothing|wait)|idle|(gaps?|pauses?|white space) between|between (two |the )?(calls|steps"
    r"|stages|computes|computations)|round[- ]?trips?|barrier|(several|three|many|\d) (computes?|calls of compute)"
    r"|(results?|intermediates?) .{0,40}(leave|client|script)",
    places=(
        *marked(__file__),
        function("bad"),
        function("released"),
        function("flowing"),
        function("measured"),
    ),
    cures=r"chain|one (single )?(compute|graph|call)|comput\w* (\w+ ){0,3}once|persist|(keep|leave|stay).{0,50}(cluster"
    r"|workers?|there)|futures?\b|scatter|at the end|without (gather|collect|comput|bring)|only (the )?(last|final"
    r"|result|what|small)|client\.(submit|map)|lazy|lazily|together|before (you )?comput|don't (gather|collect|compute"
    r"|bring)|reduce|smaller results",
    never={
        LONGER_TASKS: "tasks are few",
        HOLDS_GIL: "one thread a worker",
        MORE_WORKERS: "those that are there wait",
        MORE_MEMORY: "results need not be in one place",
        LOCK: "there is none",
    },
)


class Lump:
    """Piece of snow: where it is, and how fast."""

    def __init__(self, place: float, speed: float) -> None:
        self.place = place
        self.speed = speed


class Avalanche:
    """Lumps of snow that come down."""

    def __init__(self, lumps: list[Lump]) -> None:
        self.lumps = lumps


def released(case: int) -> Avalanche:
    """Snow on a slope, for a case."""
    places = np.random.default_rng(case).random(LUMPS).tolist()
    return Avalanche([Lump(place, 0.0) for place in places])


def flowing(snow: Avalanche) -> Avalanche:
    """Snow after it came down."""
    lumps = []
    for lump in snow.lumps:
        place, speed = lump.place, lump.speed
        for _ in range(10):
            speed += 0.1 * (1.0 - 0.2 * speed)
            place += 0.1 * speed
        lumps.append(Lump(place, speed))
    return Avalanche(lumps)


def measured(snow: Avalanche) -> float:
    return sum(lump.place * lump.speed for lump in snow.lumps)


def bad(client: Client) -> float:
    cases = dask.compute(*[dask.delayed(released)(case) for case in range(CASES)])  # <- here
    cases = dask.compute(*[dask.delayed(flowing)(snow) for snow in cases])  # <- here
    depths = dask.compute(*[dask.delayed(measured)(snow) for snow in cases])  # <- here
    return float(sum(depths))


def good(client: Client) -> float:
    depths = []
    for case in range(CASES):
        snow = dask.delayed(flowing)(dask.delayed(released)(case))
        depths.append(dask.delayed(measured)(snow))
    return float(sum(dask.compute(*depths)))
