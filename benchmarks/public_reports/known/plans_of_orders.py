"""Delivery plans are improved step by step, with a log message about the plan at each step that is switched off.

source: arskom/spyne issue 471; of the same kind: dbt-labs/metricflow pull request 1419
date:   2015-10-22 (metricflow: 2024-09-23)
seen:   messages of the debug level take seconds for real data, although that level is off.
cause:  the text of the message is made, of a large object, before the logger is called, which then throws it away.
cure:   give the object to the logger as an argument, so that its text is made only if it is written (or ask first for
        the level).
"""

from __future__ import annotations

import logging

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
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
DEPOTS, STEPS, STOPS = 12, scaled(120), 4_000

logger = logging.getLogger("plans")

EXPECTED = Expected(
    cause="most of the time goes into the text of a debug message (the repr of a whole plan), which is made at each"
    " step"
    " and not even written",
    place="the line of improved with logger.debug(f'...'), or Plan.__repr__ / Stop.__repr__",
    cure="leave the formatting to the logger (logger.debug('%s', plan)), ask isEnabledFor first, or shorten the"
    " message",
    says=r"\blog(s|ger|ging|ged)?\b|debug|__repr__|\brepr\b|__str__|format|f-?string|\btext\b|message|\bstrings?\b",
    places=(*marked(__file__), function("__repr__"), function("improved")),
    cures=r"\blog(s|ger|ging)?\b|debug|format|lazy|lazily|%s|isEnabledFor|level|shorter|less (often|text)|only (if"
    r"|when)"
    r"|message|fewer",
    never={
        LONGER_TASKS: "a task takes seconds",
        MORE_WORKERS: "both cores are busy",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "a task holds next to nothing",
    },
)


class Stop:
    """Customer on a plan."""

    __slots__ = ("minute", "x", "y")

    def __init__(self, x: float, y: float, minute: int) -> None:
        self.x, self.y, self.minute = x, y, minute

    def __repr__(self) -> str:
        return f"Stop({self.x:.3f}, {self.y:.3f} at {self.minute // 60:02d}:{self.minute % 60:02d})"


class Plan:
    """Order in which the stops of a depot are visited."""

    def __init__(self, depot: int) -> None:
        self.rng = np.random.default_rng(depot)
        self.places = self.rng.uniform(0, 50, (STOPS, 2))
        minutes = self.rng.integers(0, 720, STOPS).tolist()
        self.stops = [Stop(x, y, minute) for (x, y), minute in zip(self.places.tolist(), minutes, strict=True)]
        self.order = np.arange(STOPS)

    def __repr__(self) -> str:
        return f"Plan of {len(self.order)} stops: {[self.stops[number] for number in self.order.tolist()]}"

    def length(self, order: np.ndarray) -> float:
        return float(np.hypot(*np.diff(self.places[order], axis=0).T).sum())

    def try_reversals(self, tries: int) -> None:
        length = self.length(self.order)
        for _ in range(tries):
            first, last = np.sort(self.rng.integers(0, STOPS, 2))
            order = self.order.copy()
            order[first:last] = order[first:last][::-1]
            if (other := self.length(order)) < length:
                self.order, length = order, other


def improved(depot: int, *, eager: bool) -> float:
    plan = Plan(depot)
    for _ in range(STEPS):
        plan.try_reversals(30)
        if eager:
            logger.debug(f"after another round: {plan}")  # <- here
        else:
            logger.debug("after another round: %s", plan)
    return plan.length(plan.order)


def bad(client: Client) -> float:
    return sum(client.gather(client.map(improved, range(DEPOTS), eager=True)))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(improved, range(DEPOTS), eager=False)))
