"""Alone: how many times as long each worker takes as comparable ones for what was measured of it alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from dask_efficiency.preflights.judge.links import RANGE_TO_BEST, fastest_half, median_of_fastest, spread_of_half
from dask_efficiency.preflights.judge.readings import (
    ALONE,
    MEANINGS,
    MIN_Z,
    THRESHOLD,
    Component,
    Reading,
    Subject,
    seconds_of,
)
from dask_efficiency.straggler.peers import MIN_PEERS


@dataclass(frozen=True, slots=True)
class WorkerComparison:
    """A worker in one component, beside its peers.

    Parameters
    ----------
    ratio
        How many times as long it takes as the median of the fastest half; infinite if it failed. Where it was measured
        in turns with good workers, as these: the median of the pairs.
    low, median, high
        The same of its peers: the least, the median and the most.
    z
        Logarithm of the ratio in units of the spread of healthy workers.
    confirmed
        Whether it is slow by those pairs; None where there are none, or not enough.
    """

    ratio: float
    low: float
    median: float
    high: float
    z: float
    confirmed: bool | None = None

    @property
    def seems_slow(self) -> bool:
        """Whether it is to be measured in turns with good workers before the worker is named."""
        return self._is_beyond and self.z > 0 and math.isfinite(self.ratio)

    @property
    def is_slow(self) -> bool:
        """Whether it is so much slower that the worker is named."""
        return self.confirmed if self.confirmed is not None else self._is_beyond and self.z >= MIN_Z

    @property
    def _is_beyond(self) -> bool:
        """Whether it is so much slower than most peers too: nobody is slow because one is very fast."""
        return self.ratio >= THRESHOLD and self.ratio / self.median >= THRESHOLD


def compare_alone(subjects: Iterable[Subject]) -> dict[str, dict[Component, WorkerComparison]]:
    """Each worker by address beside the comparable ones, by component.

    Workers of a group of two have a ratio, and never enough of a ``z`` to be named: nobody can tell which one is slow.
    """
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(subject.group, []).append(subject)
    found: dict[str, dict[Component, WorkerComparison]] = {}
    for group in groups.values():
        for component in ALONE:
            seconds = {
                one.address: seconds_of(component, one.readings[component].value)
                for one in group
                if component in one.readings
            }
            for address, comparison in _compared(component, seconds, _noise(component, group)).items():
                found.setdefault(address, {})[component] = comparison
        for one in group:
            for component, reading in one.readings.items():
                if reading.beside:
                    found[one.address][component] = _in_turns(found[one.address][component], reading.beside)
    return found


def _in_turns(comparison: WorkerComparison, ratios: Sequence[float]) -> WorkerComparison:
    return replace(comparison, ratio=median(ratios), confirmed=is_confirmed(comparison.ratio, ratios))


def suspects(compared: Mapping[str, Mapping[Component, WorkerComparison]]) -> dict[str, dict[Component, float]]:
    """Address to the components in which a worker seems slow, with its ratio: they are measured again."""
    slow = {
        address: {component: one.ratio for component, one in of_worker.items() if one.seems_slow}
        for address, of_worker in compared.items()
    }
    return {address: components for address, components in slow.items() if components}


def _noise(component: Component, group: Iterable[Subject]) -> float:
    """Standard deviation of the best of three repetitions, as the repetitions of a usual worker show it."""
    ranges = [one.readings[component].range for one in group if component in one.readings]
    known = [extent for extent in ranges if math.isfinite(extent)]
    return RANGE_TO_BEST * median(known) if known else 0.0


def _compared(component: Component, seconds: dict[str, float], noise: float) -> dict[str, WorkerComparison]:
    known = [value for value in seconds.values() if math.isfinite(value)]
    reference = median_of_fastest(known) if known else math.inf
    if not 0 < reference < math.inf:  # it failed everywhere: that is no worker's fault
        return {}
    half = [math.log(value / reference) for value in fastest_half(known)]
    scale = math.hypot(spread_of_half(half), MEANINGS[component].spread, noise)
    found = {}
    for address, value in seconds.items():
        peers = sorted(other / reference for name, other in seconds.items() if name != address)
        ratio = value / reference
        z = (math.log(ratio) if math.isfinite(ratio) else math.inf) / scale if len(seconds) >= MIN_PEERS else 0.0
        middle = peers[len(peers) // 2] if peers else math.nan
        low, high = (peers[0], peers[-1]) if peers else (math.nan, math.nan)
        found[address] = WorkerComparison(ratio, low, middle, high, z)
    return found


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
