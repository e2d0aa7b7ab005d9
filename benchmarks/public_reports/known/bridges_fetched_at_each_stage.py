"""Loads on bridges are prepared, run and judged in three stages, each with a compute of its own.

source: dask/distributed issue 7066
date:   2022-09-25
seen:   each of three stages is a compute of many small tasks; between the stages there is much white space, longer
        than the stages, in which nothing runs.
cause:  all cases come back to the client at the end of each stage, and go out again, as arguments, at the start of
        the next one: fetching, pickling and sending them, and the barrier, leave the workers idle.
cure:   chain the stages of a case lazily, and compute once, at the end.
"""

from __future__ import annotations

import dask
import numpy as np
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CASES = scaled(120)
STEPS, BEAMS = 3_000, 250

EXPECTED = Expected(
    cause="between the stages all cases (6 MB each) go to the client and back to the workers as arguments, while"
    " the workers"
    " are idle",
    place="the three compute() in bad, and the delayed calls that take what they returned",
    cure="one compute of chained delayed calls (or futures that stay on the workers)",
    says=r"\bclient\b|gather|transfer|travel|mov(e|ed|es|ing)\b|\bsen[dt]\b|sending|\bgraph\b|argument"
    r"|large (result|object|"
    r"data)|serializ|pickl|round.?trip|several computes|each compute|barrier|between (the )?(stages|computes)|idle"
    r"|fetch",
    places=(*marked(__file__), function("bad"), function("prepared"), function("deflected")),
    cures=r"chain|one compute|compute (only )?once|\bonce\b|at the end|lazy|lazily|futures?\b|(on"
    r"|in) (the )?workers?|persist"
    r"|not (gather|fetch|bring)|without (gather|fetch)|together|single compute|one graph|scatter|directly",
    never={
        MORE_WORKERS: "those that there are wait for the client",
        HOLDS_GIL: "they have one thread each",
        LONGER_TASKS: "data is the problem, not the tasks' number",
        COMPUTED_AGAIN: "each is computed once",
    },
)


def prepared(case: int) -> np.ndarray:
    rng = np.random.default_rng(case)
    return rng.random((STEPS, BEAMS))


def deflected(loads: np.ndarray) -> np.ndarray:
    bends: np.ndarray = np.diff(loads, axis=0, prepend=0.0) * 0.5 + loads
    return bends


def judged(bends: np.ndarray) -> float:
    return float(bends.max(axis=0).mean())


def bad(client: Client) -> float:
    loads = dask.compute(*[delayed(prepared)(case) for case in range(CASES)])  # <- here
    bends = dask.compute(*[delayed(deflected)(load) for load in loads])  # <- here
    return float(sum(dask.compute(*[delayed(judged)(bend) for bend in bends])))  # <- here


def good(client: Client) -> float:
    cases = [delayed(judged)(delayed(deflected)(delayed(prepared)(case))) for case in range(CASES)]
    return float(sum(dask.compute(*cases)))
