"""A noisy map of gravity is smoothed on grids that are shifted a little each time, and the mean of all is taken.

source: scikit-image/scikit-image pull request 2647 (its comment of 2017-11-03: the second of four variants)
date:   2017-11-03
seen:   of variants that should all be equally fast, one of dask.delayed takes as long as the loop it replaces.
cause:  the function is called where its result is given to delayed, delayed(f(x)) instead of delayed(f)(x): all calls
        run one after the other in the script, and what is delayed is a finished array, that is sent along.
cure:   delayed(f)(x).
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
SHIFTS = scaled(44)
SIZE, STEP, ROUNDS = 240, 8, 600

EXPECTED = Expected(
    cause="smoothed is called before delayed: the script does all the work alone, and sends finished arrays",
    place="delayed(smoothed(...)) in bad, or smoothed, which the script runs",
    cure="delayed(smoothed)(...)",
    says=r"(client|script|main (process|thread)|your (process|program|code)).{0,80}(comput|works?\b|working|busy|alone"
    r"|itself|runs?\b|spen[dt]|does\b|call)|(workers?|cluster).{0,60}(idle|nothing|wait|unused|no (work|tasks))"
    r"|before (it is |they are )?(delayed|dask)|called (at once|immediately|eagerly|right away|first|before)|eager"
    r"|outside (of )?(dask|tasks|the cluster)|one after (the other|another)|not (\w+ ){0,3}(in parallel|delayed"
    r"|on the cluster|on workers)|call(s|ed|ing)? .{0,40}(instead of|not) (the )?function|result.{0,30}(instead of|not)"
    r" the function",
    places=(*marked(__file__), function("smoothed"), function("bad")),
    cures=r"delayed\(\w+\)\(|delayed\([^)]*\)\(|function(,| itself| and| to delayed)|without (the )?(call|parenthes)"
    r"|not (its|the) (result|call)|client\.(submit|map)|\bsubmit|in (the )?tasks|on (the )?(workers?|cluster)|pass"
    r" .{0,30}function|call delayed|map_blocks",
    never={
        LONGER_TASKS: "smoothing takes a tenth of a second, which is long enough for a task",
        HOLDS_GIL: "workers have one thread each",
        MORE_WORKERS: "those that are there have nothing to do",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
    },
)


def gravity() -> np.ndarray:
    east, north = np.meshgrid(np.linspace(0.0, 6.0, SIZE), np.linspace(0.0, 6.0, SIZE))
    return np.sin(east) * np.cos(north) + np.random.default_rng(0).normal(0.0, 0.2, (SIZE, SIZE))


def smoothed(values: np.ndarray, shift: tuple[int, int]) -> np.ndarray:
    """Map that is smoothed within cells of a shifted grid, with edges kept."""
    moved = np.roll(values, shift, axis=(0, 1))
    cells = moved.reshape(SIZE // STEP, STEP, SIZE // STEP, STEP)
    weights = np.empty_like(cells)
    for _ in range(ROUNDS):
        means = cells.mean(axis=(1, 3), keepdims=True)
        np.subtract(cells, means, out=cells)
        np.square(cells, out=weights)
        np.negative(weights, out=weights)
        np.exp(weights, out=weights)
        np.subtract(1.0, weights, out=weights)
        np.multiply(cells, weights, out=cells)
        np.add(cells, means, out=cells)
    return np.roll(moved, (-shift[0], -shift[1]), axis=(0, 1))


def shifts() -> list[tuple[int, int]]:
    return [(number % STEP, (number // STEP) % STEP) for number in range(SHIFTS)]


def mean_of(maps: list[np.ndarray]) -> np.ndarray:
    return np.asarray(np.mean(maps, axis=0))


def bad(client: Client) -> float:
    values = gravity()
    maps = [dask.delayed(smoothed(values, shift)) for shift in shifts()]  # <- here
    mean = dask.delayed(mean_of)(maps).compute()
    return float(np.abs(mean).sum())


def good(client: Client) -> float:
    values = dask.delayed(gravity(), pure=True)
    maps = [dask.delayed(smoothed)(values, shift) for shift in shifts()]
    mean = dask.delayed(mean_of)(maps).compute()
    return float(np.abs(mean).sum())
