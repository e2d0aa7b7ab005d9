"""The demand at water meters, forecast from their readings.

source: dask/dask issue 9693
date:   2022-11-24
seen:   forecasts for thousands of meters, one delayed call each; as a list of more than a thousand seemed to hang, the
        list was cut, and compute called for each part in a loop. It took much longer than it should.
cause:  each compute waits for the last of its part, so that the workers idle at each end, and nothing of the next part
        may start meanwhile.
cure:   one compute of all.

A few meters, in each part, have a long record.
"""

from __future__ import annotations

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, TWO_BY_ONE, WAITS_FOR_CORES, Expected, marked, scaled

CLUSTER = TWO_BY_ONE
METERS = scaled(256)
PART = 8

EXPECTED = Expected(
    cause="compute is called for one part after the other, and waits for the longest task of each: workers are idle"
    " between computations",
    place="the line of compute in the loop",
    cure="one compute for all meters",
    says=r"one after (the other|another)|\bwait\w* for|barrier|\d+ (small )?(computations|graphs|computes)|in a loop"
    r"|in turn|between .{0,20}comput|(idle|nothing to do).{0,60}(comput|batch|part)",
    places=(*marked(__file__),),
    cures=r"at once|\bone (compute|computation|call|graph)|single (compute|computation|call|graph)|together"
    r"|as_completed|larger (parts|batches)|all (the )?(meters|tasks|parts)|fewer (computations|calls)"
    r"|(before|without) waiting",
    never={
        COMPUTED_AGAIN: "each forecast is another one",
        WAITS_FOR_CORES: "there are as many threads as cores",
    },
)


def forecast(meter: int) -> float:
    """Demand tomorrow."""
    rounds = 400 if meter % PART == PART - 1 else 2
    state = np.random.default_rng(meter).random(50_000)
    for _ in range(rounds):
        state = np.cos(state + 0.1)
    return float(state.mean()) + meter


def bad(client: Client) -> float:
    demands: list[float] = []
    for first in range(0, METERS, PART):
        lazy = [dask.delayed(forecast)(meter) for meter in range(first, min(first + PART, METERS))]
        demands += dask.compute(*lazy)  # <- here
    return sum(demands)


def good(client: Client) -> float:
    return sum(dask.compute(*[dask.delayed(forecast)(meter) for meter in range(METERS)]))
