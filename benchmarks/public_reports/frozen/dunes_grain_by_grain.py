"""Sand that wanders over a row of dunes, step after step.

source: dask/distributed issue 2611
date:   2019-04-12
seen:   an application that makes its tasks by dask.delayed, each from its neighbours of the step before, took longer
        per task the more steps it had; the client had one core at 100 %, and the workers were idle.
cause:  each call of a delayed function merges the whole graph so far of all its inputs, so that building takes a time
        that grows with the square of the number of tasks.
cure:   compute (or persist) every few steps, so that graphs remain short.
"""

from __future__ import annotations

import dask
import numpy as np
from distributed import Client, wait

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
STEPS = scaled(50)
DUNES = 20
REACH = 2
TOGETHER = 10

EXPECTED = Expected(
    cause="the client spends its time building the graph: each delayed call merges the graphs of its inputs, which"
    " grow with each step, while the workers are idle",
    place="the line that calls the delayed function in the loop",
    cure="persist (or compute) every few steps, or submit futures, so that no graph grows long",
    says=r"\bgraphs?\b.{0,60}(grow|build|built|long|large|merg|deep|big)|(build|grow|merg|mak)\w*.{0,40}\bgraphs?\b"
    r"|delayed.{0,40}(client|loop|merg|slow)",
    places=(*marked(__file__), function("stepped")),
    cures=r"persist|compute .{0,30}(often|every|each|few|between|steps)|futures?|submit|fewer (tasks|calls)"
    r"|(short|small)\w* graphs?|larger tasks|more work",
    never={
        COMPUTED_AGAIN: "no result is computed twice",
        MORE_WORKERS: "the workers have nothing to do",
    },
)


def settle(around: list[np.ndarray]) -> np.ndarray:
    """Height of a dune after a step."""
    return np.mean(around, axis=0) + 0.01


def stepped(row: list) -> list:
    return [
        dask.delayed(settle)([row[(i + d) % DUNES] for d in range(-REACH, REACH + 1)])  # <- here
        for i in range(DUNES)
    ]


def started() -> list:
    return [dask.delayed(np.full)(500, float(i % 7)) for i in range(DUNES)]


def height(row: list) -> float:
    return float(sum(dune.sum() for dune in dask.compute(*row)))


def bad(client: Client) -> float:
    row = started()
    for _ in range(STEPS):
        row = stepped(row)
    return height(row)


def good(client: Client) -> float:
    row = started()
    for step in range(STEPS):
        row = stepped(row)
        if step % TOGETHER == TOGETHER - 1:
            row = list(dask.persist(*row))
            wait(row)
    return height(row)
