"""Arrivals: workers that came during a report, and how long each took from request to first task."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dask_efficiency.show.figures import format_seconds


@dataclass(frozen=True, slots=True)
class Arrival:
    """A worker that came during the window; all in seconds after its opening, NaN where that is not known."""

    worker: str
    #: When the cluster's manager was asked for it.
    asked: float
    joined: float
    #: When it was given its first task.
    first_task: float


def first_request(arrivals: Sequence[Arrival]) -> str:
    """How many workers were asked for during the window, and when first; empty where none is known to be."""
    asked = [arrival.asked for arrival in arrivals if math.isfinite(arrival.asked)]
    if not asked:
        return ""
    workers = "1 worker" if len(asked) == 1 else f"{len(asked)} workers"
    return f"{workers} asked for, the first after {format_seconds(max(0.0, min(asked)))}"


def lines(arrivals: Sequence[Arrival]) -> list[str]:
    """What is known of the workers that came, a sentence each."""
    if not arrivals:
        return []
    joined = [arrival.joined for arrival in arrivals if math.isfinite(arrival.joined)]
    said = [f"{len(arrivals)} came during the window"]
    if joined:
        said[0] += f", the first after {format_seconds(max(0.0, min(joined)))}"
    if request := first_request(arrivals):
        said.append(f"{request}: {_medians(arrivals)}")
    return said


def _medians(arrivals: Sequence[Arrival]) -> str:
    steps = (("from request to joining", "asked", "joined"), ("from there to the first task", "joined", "first_task"))
    found = []
    for what, since, until in steps:
        took = [getattr(arrival, until) - getattr(arrival, since) for arrival in arrivals]
        known = [seconds for seconds in took if math.isfinite(seconds)]
        if known:
            found.append(f"{what} {format_seconds(max(0.0, statistics.median(known)))}")
    return f"{', '.join(found)} (medians)" if found else "none of them is known to have come"
