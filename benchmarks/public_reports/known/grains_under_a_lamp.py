"""Grains of sand are dated by the light they give; each row of a table becomes a delayed call.

source: dask/dask issue 5044
date:   2019-07-02
seen:   a function of a row takes 6 ms for all 500 rows in a loop, and 75 ms if it is delayed for each row.
cause:  a task costs some hundred microseconds, in the client, the scheduler and the worker, which is far more than the
        function takes for a row.
cure:   many rows in a task.
"""

from __future__ import annotations

import dask
import numpy as np
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

CLUSTER = TWO_BY_ONE
GRAINS, AT_ONCE = scaled(3800), 250

EXPECTED = Expected(
    cause="there is a task for each grain, which takes microseconds, so that nearly all time is the overhead of tasks",
    place="the delayed call of age for each grain, or the compute() of all",
    cure="a task for many grains",
    says=r"(small|short|tiny|brief|many|thousands of|\d{4,}|number of) (\w+ )?tasks|tasks (are|were|is) (too )?(small"
    r"|short|tiny|brief)|overhead|(each|every|per|one) (task|row|grain)\b|graph|scheduler|tasks? .{0,40}(micros|millis"
    r"|\bms\b|\bus\b|µs)",
    places=(*marked(__file__), function("age"), function("one_by_one")),
    cures=r"larger|longer|bigger|fewer|batch|group|chunk|partition|block|several|many (rows|grains|calls)|more (work"
    r"|rows|grains)|combine|together|(one|a) task for|coarse|slice",
    never={
        MORE_WORKERS: "they would wait for the scheduler as well",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
    },
)


def doses() -> np.ndarray:
    return np.random.default_rng(5044).gamma(3.0, 2.0, size=(GRAINS, 4))


def age(dose: np.ndarray) -> float:
    """Age of a grain from doses that were measured for it."""
    return float(np.sum(np.sin(1.0 / (1.0 + np.exp(-(dose**2))))))


def ages(some: np.ndarray) -> list[float]:
    return [age(dose) for dose in some]


def one_by_one(table: np.ndarray) -> float:
    found = [dask.delayed(age)(dose) for dose in table]  # <- here
    return float(sum(dask.compute(*found)))  # <- here


def bad(client: Client) -> float:
    return one_by_one(doses())  # <- here


def good(client: Client) -> float:
    table = doses()
    found = [dask.delayed(ages)(table[start : start + AT_ONCE]) for start in range(0, GRAINS, AT_ONCE)]
    return float(sum(sum(some) for some in dask.compute(*found)))
