"""Settings of a reactor are scattered to all workers for each point of a grid, before its tasks are submitted.

source: coiled/feedback issue 187
date:   2022-08-15
seen:   a script that is fast on a laptop is slow on a cluster: within nested loops it scatters a few kilobytes to all
        workers and then maps a function over them.
cause:  the script waits for each scatter until all workers have their copy; meanwhile there is nothing to compute.
cure:   pass so small a thing as an argument, or scatter once before the loops.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
TEMPERATURES = range(400, 400 + scaled(60))
PRESSURES = range(25)
CATALYSTS = ("nickel",)

EXPECTED = Expected(
    cause="the script scatters to all workers for each point of the grid, and waits for it",
    place="the scatter() in the loop",
    cure="settings as an argument of the tasks, or one scatter before the loops",
    says=r"scatter|broadcast|round.?trip|(client|script).{0,60}(wait|block)|one (at a time|after the other|by one)"
    r"|wait(s|ed|ing)? (for|until) .{0,40}(cop(y|ies)|workers have|transfer)",
    places=(*marked(__file__), function("scatter"), function("bad")),
    cures=r"argument|once|outside|before the loop|out of the loop|all (of them )?at once|one (scatter|call)|directly"
    r"|without (the )?scatter|(instead of|no) scatter|broadcast=False|in (the|one) (graph|batch)|fewer|together|batch"
    r"|client\.(map|submit)",
    never={
        MORE_WORKERS: "each of them would be waited for",
        MORE_MEMORY: "settings have a few kilobytes",
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
    },
)


def settings_at(temperature: int, pressure: int) -> dict[str, float | list[float]]:
    """Settings of a point of the grid, of a few kilobytes."""
    flow = np.linspace(0, temperature, 100) * (1 + pressure / 10)
    return {"temperature": float(temperature), "pressure": float(pressure), "flow": flow.tolist()}


def yield_of(catalyst: str, settings: dict[str, float | list[float]]) -> float:
    """Yield with a catalyst."""
    flow = np.asarray(settings["flow"])
    rate = np.exp(-len(catalyst) * 100 / (1 + flow)) * (1 + float(settings["pressure"]))  # type: ignore[arg-type]
    return float(np.trapezoid(rate, flow) / len(rate))


def bad(client: Client) -> float:
    futures = []
    for temperature in TEMPERATURES:
        for pressure in PRESSURES:
            (settings,) = client.scatter([settings_at(temperature, pressure)], broadcast=True)  # <- here
            futures += client.map(yield_of, CATALYSTS, settings=settings)
    return float(sum(client.gather(futures)))


def good(client: Client) -> float:
    futures = []
    for temperature in TEMPERATURES:
        for pressure in PRESSURES:
            futures += client.map(yield_of, CATALYSTS, settings=settings_at(temperature, pressure))
    return float(sum(client.gather(futures)))
