"""A delayed recipe gets a delayed function as argument and calls it for many pieces.

source: dask/dask issue 10733 (and Quantum-Accelerators/quacc issue 1381)
date:   2023-12-20
seen:   a function decorated with delayed is handed another delayed function and calls it four times; the four calls,
        each some seconds long, run one after another instead of side by side, whatever the number of workers.
cause:  Dask turns Delayed arguments into their values before the task runs: the recipe gets the plain function, so its
        calls are ordinary calls within one task.
cure:   make the calls part of the graph: call the delayed function outside of the recipe, for each piece, and give the
        recipe the results; or delay and compute inside of the recipe on purpose.
"""

from __future__ import annotations

from collections.abc import Callable

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SLABS = scaled(24)

EXPECTED = Expected(
    cause="no parallelism: all the work is in one long task on one worker; the calls which were meant to be tasks run"
    " one"
    " after another inside of the task `cut_and_relax`, because a delayed function that is passed as an argument"
    " arrives"
    " as a plain function",
    place="the call step(slab) inside cut_and_relax(), and the passing of the delayed `relax` to it in bad()",
    cure="call the delayed function for each slab while the graph is built (outside of the delayed recipe) and pass on"
    " the results; do not use delayed inside of delayed",
    says=r"(one|single|1|few|fewer|longest|long|large|big|too large) (\w+ )?(tasks?|workers?|cores?|threads?)|parallel"
    r"|\bidl(e|es|ed|ing)\b|critical path|(inside|within) (of )?(the |a |one )?task|serial|sequential|one after|in turn"
    r"|plain function|delayed.{0,40}\b(inside|within|in|argument)|nested|nothing (else )?to (do|run)|balanc|uneven",
    places=(*marked(__file__), function("cut_and_relax")),
    cures=r"split|outside|(in|part of|into) the graph|(each|every|per) (slab|piece|call|item|step)|delayed|divide|break"
    r"|(more|smaller|several|many|separate|own|shorter) (\w+ )?tasks?|tasks? (of|for) (its own|each)|parallel|\bmap\b"
    r"|submit",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "the other worker has nothing to do",
        MORE_WORKERS: "the other worker has nothing to do",
        r"(?i)work[- ]stealing|prefers (one|a) worker": "there is one task",
        r"(?i)optimi[sz]e [`']?relax|smaller chunks|chunks smaller": "the steps do not run side by side",
    },
)


def relax(slab: int) -> float:
    """Work on one slab."""
    compute_for(0.35)
    return float(np.sin(np.linspace(0.0, 1.0 + slab, 50_000)).sum())


def slabs_of(bulk: int) -> list[int]:
    return [bulk + number for number in range(SLABS)]


@dask.delayed
def cut_and_relax(bulk: int, step: Callable[[int], float]) -> float:
    return sum(step(slab) for slab in slabs_of(bulk))  # <- here


@dask.delayed
def total(parts: list[float]) -> float:
    return sum(parts)


def bad(client: Client) -> float:
    return cut_and_relax(3, dask.delayed(relax)).compute()  # <- here


def good(client: Client) -> float:
    step = dask.delayed(relax)
    return total([step(slab) for slab in slabs_of(3)]).compute()
