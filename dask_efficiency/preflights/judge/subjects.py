"""Subjects: the workers that are tested, and what was measured of each alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.preflights.judge.components import Component, seconds_of, worst


@dataclass(frozen=True, slots=True)
class Reading:
    """The best that a worker showed in one component.

    Parameters
    ----------
    value
        In the unit of the component; infinitely bad (nothing of a rate, infinite seconds) where it failed or hung.
    share
        Share of that time in which the thread computed, or NaN where that does not tell anything.
    others
        CPU seconds a second that other threads of the process used meanwhile; NaN where that is not known.
    count
        How often it was measured.
    range
        Logarithm of the largest of these over the least; NaN where it was measured once.
    beside
        How many times as long it took as a good worker that was measured right before or after it, each time that it
        was; empty where nobody doubted it.
    """

    value: float
    share: float = math.nan
    others: float = math.nan
    count: int = 1
    range: float = math.nan
    beside: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """A worker, and what was measured of it alone.

    Parameters
    ----------
    name, address, host
        Of the worker.
    group
        Equal for workers that were made alike, which are compared.
    readings
        By component.
    missing
        By component that was not measured, why.
    not_tested
        Why nothing was measured of it; empty if something was.
    broken
        Why it cannot work at all, of a worker that does not answer or takes no tasks; empty for any other.
    paused
        Whether that is because its memory is full.
    """

    name: str
    address: str
    host: str
    group: str = ""
    readings: Mapping[Component, Reading] = field(default_factory=dict)
    missing: Mapping[Component, str] = field(default_factory=dict)
    not_tested: str = ""
    broken: str = ""
    paused: bool = False


def read_measurements(answer: object) -> tuple[dict[Component, Reading], dict[Component, str]]:
    """What a worker measured of itself, and what it could not measure and why.

    Parameters
    ----------
    answer
        By component, ``value`` with ``share``, ``others``, ``count`` and ``range`` where they are known; or
        ``missing``, the reason; or ``failed``, the reason of what failed or hung, which is infinitely slow.

    Raises
    ------
    RefusedPayload
        If it is something else.
    """
    if not isinstance(answer, Mapping):
        raise RefusedPayload(f"measurements are {answer!r:.80}; expected them by component")
    readings: dict[Component, Reading] = {}
    missing: dict[Component, str] = {}
    for name, content in answer.items():
        try:
            component = Component(name)
        except ValueError:
            raise RefusedPayload(f"unknown component {name!r:.80}; expected one of {', '.join(Component)}") from None
        if not isinstance(content, Mapping):
            raise RefusedPayload(f"{component} is {content!r:.80}; expected a reading")
        if "missing" in content:
            missing[component] = str(content["missing"])[:500]
        elif "failed" in content:
            missing[component] = str(content["failed"])[:500]
            readings[component] = Reading(worst(component))
        else:
            readings[component] = _reading(component, content)
    return readings, missing


def _reading(component: Component, content: Mapping[str, Any]) -> Reading:
    numbers = [content.get(name, math.nan) for name in ("value", "share", "others", "range")]
    numbers = [math.nan if number is None else number for number in numbers]
    count = content.get("count", 1)
    if not all(isinstance(number, int | float) for number in numbers) or not isinstance(count, int):
        raise RefusedPayload(f"{component} is {dict(content)!r:.200}; expected numbers")
    value, share, others, extent = map(float, numbers)
    if not 0 <= value < math.inf:
        raise RefusedPayload(f"{component} is {value!r}; expected a number from 0")
    return Reading(value, share, others, count, extent)


def better(component: Component, one: Reading | None, other: Reading) -> Reading:
    """The better of two readings, with how often both were measured."""
    if one is None:
        return other
    best = min(one, other, key=lambda reading: seconds_of(component, reading.value))
    extent = max((each.range for each in (one, other) if each.range >= 0), default=math.nan)
    return Reading(best.value, best.share, best.others, one.count + other.count, extent, one.beside)
