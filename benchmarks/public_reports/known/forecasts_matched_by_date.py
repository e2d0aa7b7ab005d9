"""Days of forecasts are looked up among the days of observations, as dates of a model calendar.

source: pangeo-data/climpred pull request 724; of the same kind: issue 523
date:   2022-02-01 (issue 523: 2020-11-16)
seen:   to find out which starts of forecasts can be verified takes longer than the scores.
cause:  dates of a calendar without leap days are Python objects: they are made, hashed and compared one by one.
cure:   numbers of days instead of dates, which numpy compares at once.
"""

from __future__ import annotations

import cftime
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("cftime",)
CLUSTER = TWO_BY_ONE
STARTS = scaled(12)
MEMBERS, LEADS = 3, 400
OBSERVED = 3000
UNITS, CALENDAR = "days since 1980-01-01", "noleap"

EXPECTED = Expected(
    cause="dates are Python objects, which are made and compared one by one",
    place="verified, where it makes dates or looks them up",
    cure="compare numbers of days with numpy",
    says=r"\bpython\b|\bobjects?\b|cftime|one (by one|at a time|after the other)|interpret|(each|every"
    r"|per) (date|element"
    r"|value|item|day|call)|element[- ]wise|\bdtype\b|pure[- ]python|small calls|many calls|vectori[sz]",
    places=(*marked(__file__), function("verified"), function("dates_of"), r"cftime|\b(isin|in1d|num2date|unique)\b"),
    cures=r"numbers?\b|integers?\b|numpy|vectori[sz]|datetime64|date2num|\bint|float|array|native|compil|numeric",
    never={
        LONGER_TASKS: "a task takes a second",
        MORE_WORKERS: "the cores are busy",
        MORE_MEMORY: "all of it is small",
        HOLDS_GIL: "a worker has one thread",
    },
)


def observed() -> np.ndarray:
    """Days with observations, some of which are missing."""
    return np.sort(np.random.default_rng(5).choice(2 * OBSERVED, OBSERVED, replace=False))


def days_of(start: int, member: int) -> np.ndarray:
    return 180 * start + 7 * member + np.arange(LEADS)


def dates_of(days: np.ndarray) -> np.ndarray:
    return cftime.num2date(days, UNITS, CALENDAR)  # <- here


def score(start: int, member: int, known: np.ndarray) -> float:
    """Error of a forecast on the days that are known."""
    values = np.random.default_rng(1000 * start + member).normal(size=LEADS)
    return float(np.abs(values[known]).sum())


def verified(start: int, observations: np.ndarray) -> float:
    total = 0.0
    for member in range(MEMBERS):
        known = np.isin(dates_of(days_of(start, member)), dates_of(observations))  # <- here
        total += score(start, member, known)
    return total


def verified_by_number(start: int, observations: np.ndarray) -> float:
    total = 0.0
    for member in range(MEMBERS):
        known = np.isin(days_of(start, member), observations)
        total += score(start, member, known)
    return total


def bad(client: Client) -> float:
    return sum(client.gather(client.map(verified, range(STARTS), observations=observed())))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(verified_by_number, range(STARTS), observations=observed())))
