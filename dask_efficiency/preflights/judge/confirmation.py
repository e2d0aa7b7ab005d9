"""Confirmation: whether a worker that seems slow is slow each time that it is measured beside a good one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from dask_efficiency.preflights.judge.components import THRESHOLD, Component, seconds_of
from dask_efficiency.preflights.judge.subjects import Reading, Subject

#: Pairs of measurements, next to each other in time, by which it is known whether a worker is slow.
PAIRS = 5

#: Pairs that are enough where the worker takes as many times as long in each of them, and did when it was suspected.
PAIRS_OF_MUCH_SLOWER = 2
MUCH_SLOWER = 2.0

#: Below this a pair speaks for the worker. One such pair may be chance, two are not.
ALIKE = 1.15
MAX_ALIKE = 1


def is_confirmed(first: float, ratios: Sequence[float]) -> bool | None:
    """Whether a worker is slow; None until there are enough pairs to tell.

    Parameters
    ----------
    first
        How many times as long as its peers it took at first, which is why it is suspected.
    ratios
        How many times as long it took as a good worker, of each pair. What the two have in common, such as a machine
        that is slow for a second, is not in them.
    """
    if sum(ratio < ALIKE for ratio in ratios) > MAX_ALIKE:
        return False
    if len(ratios) >= PAIRS_OF_MUCH_SLOWER and min(first, *ratios) >= MUCH_SLOWER:
        return True
    if len(ratios) < PAIRS:
        return None
    return median(ratios) >= THRESHOLD


def unsettled(subject: Subject, suspected: Mapping[Component, float]) -> list[Component]:
    """Components of which it takes more pairs to tell whether the worker is slow.

    Parameters
    ----------
    subject
        The worker.
    suspected
        By component in which it seems slow, how many times as long as its peers it took at first.
    """
    return [one for one, first in suspected.items() if is_confirmed(first, subject.readings[one].beside) is None]


def with_pair(subject: Subject, own: Mapping[Component, Reading], good: Mapping[Component, Reading]) -> Subject:
    """A worker with one more pair of each component that was measured of both.

    Parameters
    ----------
    own, good
        What it and a good worker showed, one right after the other.
    """
    readings = dict(subject.readings)
    for component in own.keys() & good.keys() & readings.keys():
        seconds, least = (seconds_of(component, each[component].value) for each in (own, good))
        if 0 < least < math.inf and seconds < math.inf:  # what fails in a short time that is left says nothing
            before = readings[component]
            readings[component] = replace(before, beside=(*before.beside, seconds / least))
    return replace(subject, readings=readings)
