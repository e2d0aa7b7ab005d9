"""Deepest points of energy landscapes are searched from random starts; what takes too long is given up for another.

source: dask/distributed issue 2617; like cases: dask/distributed issue 2106, dask/dask issue 1183
date:   2019-04-17 (issue 2106: 2018-07-11)
seen:   tasks that take too long are cancelled and others submitted in their place, but these do not start.
cause:  cancelling a future makes the scheduler forget it; a function that runs already goes on to its end in the thread
        of the worker, for a result that nobody wants, and what was submitted instead waits behind it.
cure:   let the function itself look at its budget (or at an event), and come back when it is used up.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
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
LANDSCAPES, LANES = scaled(5), 2
#: How long the script waits for a search, and how many rounds one has time for until then, about.
PATIENCE, ROUNDS = 0.5, 120
#: Rounds of a search with long strides, and of one with short ones.
LONG_STRIDES, SHORT_STRIDES = 40, 900
WALKERS = 100_000

EXPECTED = Expected(
    cause="searches that were cancelled go on in the threads of the workers, and others wait behind them",
    place="the cancel in deepest_impatient, or the function search, which cannot be stopped",
    cure="a budget (or a stop flag, an event, a deadline) that the function looks at; do not submit anew",
    says=r"cancel|given up|gives? up|abandon|aborted|timed? ?-?out|no longer (wanted|needed)|nobody (wants|needs|waits)"
    r"|(results?|outputs?)[^\n]{0,40}(never|not|un)[ -]?(\w+ )?(used|gathered|fetched|collected|read)"
    r"|(results?|outputs?)[^\n]{0,40}(never|not|un)[ -]?(\w+ )?(wanted|needed|kept)"
    r"|thrown away|discard|dropped|forgotten|released (before|while)|still run|(go|goes|went|kept|keeps?) on running"
    r"|keeps? running|wasted (work|tasks?)",
    places=(*marked(__file__), function("search"), function("deepest_impatient")),
    cures=r"budget|deadline|time ?-?limit|\bevents?\b|\bflag\b|stop (early|itself|when|the function|them|it)"
    r"|check|\bVariable\b"
    r"|cooperat|inside the (task|function)|wait (for|longer)|longer timeout|(larger|raise|increase)[^\n]{0,20}timeout"
    r"|(not|instead of|rather than|without|before)[^\n]{0,20} cancel|subprocess|process[^\n]{0,30}(kill|terminat)"
    r"|fewer (starts|attempts|submi)|not (re)?submit|only (submit|start)|return early"
    r"|max(imum)? (number of )?(iter|steps)",
    never={
        MORE_WORKERS: "they would be taken by dead searches as well",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        LONGER_TASKS: "tasks are long",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def depth(places: np.ndarray, landscape: int) -> np.ndarray:
    """Depth of a landscape at places."""
    away = places - 0.1 * landscape
    return 1.0 - np.exp(-(away**2)) * (0.9 + 0.1 * np.cos(3.0 * away)) + 0.01 * landscape


def search(landscape: int, attempt: int, rounds: int | None = None) -> float | None:  # <- here
    """Depth of the deepest point, or nothing if it was not found in so many rounds."""
    rng = np.random.default_rng([landscape, attempt])
    needed = LONG_STRIDES if rng.random() < 0.4 else SHORT_STRIDES
    places = np.linspace(-20.0, 20.0, WALKERS) + 0.1 * landscape + rng.normal()
    lowest = np.inf
    for done in range(needed):
        if done == rounds:
            return None
        places += (0.1 * landscape - places) * 12.0 / needed
        lowest = min(lowest, float(depth(places, landscape).min()))
    return lowest


def deepest_impatient(client: Client, landscape: int) -> float:
    """Deepest point of a landscape, by the first search that is quick enough."""
    for attempt in count():
        future = client.submit(search, landscape, attempt)
        try:
            return future.result(timeout=PATIENCE) or 0.0
        except TimeoutError:
            future.cancel()  # <- here
    raise AssertionError


def deepest(client: Client, landscape: int) -> float:
    """The same, with searches that come back when their budget is used up."""
    for attempt in count():
        found = client.submit(search, landscape, attempt, rounds=ROUNDS).result()
        if found is not None:
            return float(found)
    raise AssertionError


def bad(client: Client) -> float:
    with ThreadPoolExecutor(LANES) as lanes:
        return sum(lanes.map(lambda landscape: deepest_impatient(client, landscape), range(LANDSCAPES)))


def good(client: Client) -> float:
    with ThreadPoolExecutor(LANES) as lanes:
        return sum(lanes.map(lambda landscape: deepest(client, landscape), range(LANDSCAPES)))
