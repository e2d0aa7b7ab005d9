"""Comparison of workers measured alone: ratio of each one's time to comparable ones', and its confirmation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from dask_efficiency.accounts.slow_worker import Evidence
from dask_efficiency.preflights.judge.links import median_of_fastest
from dask_efficiency.preflights.judge.readings import ALONE, THRESHOLD, TWICE, Component, Reading, Subject
from dask_efficiency.straggler.peers import MIN_PEERS, THREE_SIGMA, beside_peers, healthy_spread

#: Ratio from which a worker is measured again: less than what is slow, as a first look has one repetition. Of 1.15, 1.2
#: and 1.25 the fastest that finds as many workers 1.5 times as slow as three repetitions of everybody do, where these
#: differ by 10 % (``python -m benchmarks.preflight simulated --moments 0.1``).
SUSPICIOUS = 1.2


@dataclass(frozen=True, slots=True)
class WorkerComparison:
    """A worker in one component, compared with its peers."""

    #: Its ratio, as below, with those of its peers, and its logarithm in units of the spread of healthy workers.
    evidence: Evidence
    #: Ratio that most of its peers, half of them or more, do not exceed; infinite if half of them failed.
    of_most: float = math.nan
    #: True if it is slow by turns with good workers; None without any, or with too few.
    confirmed: bool | None = None

    @property
    def ratio(self) -> float:
        """Ratio of its time to the median of the fastest half, or to good workers' in turns; infinite if it failed."""
        return self.evidence.value

    @property
    def seems_slow(self) -> bool:
        """True if the worker is to be measured again, and in turns with good workers, before it is named."""
        return self._is_beyond(SUSPICIOUS) and self.evidence.z > 0 and math.isfinite(self.ratio)

    @property
    def is_slow(self) -> bool:
        """True if it is slow enough to be named."""
        if self.confirmed is not None:
            return self.confirmed
        return self._is_beyond(THRESHOLD) and self.evidence.z >= THREE_SIGMA

    def _is_beyond(self, bound: float) -> bool:
        """True if it is slower than most peers too: nobody is slow because one is very fast."""
        return self.ratio >= bound and self.ratio / self.of_most >= bound


def compare_alone(subjects: Iterable[Subject]) -> dict[str, dict[Component, WorkerComparison]]:
    """Compare each worker with comparable ones, by address and component."""
    # Workers of a group of two have a ratio, and never enough of a ``z`` to be named: nobody can tell which one is
    # slow.
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(subject.group, []).append(subject)
    compared: dict[str, dict[Component, WorkerComparison]] = {}
    for group in groups.values():
        for component in ALONE:
            readings = {
                subject.address: subject.readings[component] for subject in group if component in subject.readings
            }
            for address, comparison in _compared(component, readings).items():
                compared.setdefault(address, {})[component] = comparison
    return compared


def suspects(compared: Mapping[str, Mapping[Component, WorkerComparison]]) -> dict[str, dict[Component, float]]:
    """Components in which a worker seems slow, with its ratio, by address: they are measured again."""
    slow = {
        address: {component: comparison.ratio for component, comparison in of_worker.items() if comparison.seems_slow}
        for address, of_worker in compared.items()
    }
    return {address: components for address, components in slow.items() if components}


def _compared(component: Component, readings: Mapping[str, Reading]) -> dict[str, WorkerComparison]:
    seconds = {address: component.seconds(reading.value) for address, reading in readings.items()}
    known = [value for value in seconds.values() if math.isfinite(value)]
    reference = median_of_fastest(known) if known else math.inf
    if not 0 < reference < math.inf:  # a failure everywhere is no worker's fault
        return {}
    scale = math.hypot(np.nan_to_num(healthy_spread(np.log(np.divide(known, reference)), 0.0)), component.spread)
    ratios = np.divide(list(seconds.values()), reference)
    z = np.log(ratios) / scale if len(seconds) >= MIN_PEERS else np.zeros(len(ratios))
    # The upper one of two middle peers: half of them are not most. With the mean of both, or without those that failed,
    # three of five workers are named that take twice as long as the other two, and all six of ten that failed.
    ordered, half = np.sort(ratios).tolist(), (len(ratios) - 1) // 2
    by_address = {}
    for who, (address, reading) in enumerate(readings.items()):
        evidence = beside_peers(str(component), ratios, who, z=float(z[who]), tasks=reading.count)
        of_most = ordered[half + (evidence.value <= ordered[half])] if len(ordered) > 1 else math.nan
        comparison = WorkerComparison(evidence, of_most)
        if turns := reading.beside:
            in_turns, confirmed = replace(evidence, value=median(turns)), is_confirmed(evidence.value, turns)
            comparison = replace(comparison, evidence=in_turns, confirmed=confirmed)
        by_address[address] = comparison
    return by_address


#: Measurements in turns with a good worker, next to each other in time, that settle whether a worker is slow. A guess.
PAIRS = 5
#: Two turns are enough if the worker takes this many times as long in each, and did when it was suspected. A guess.
MUCH_SLOWER = 2.0
#: Ratio below which a turn speaks for the worker. With 1.2, from which a worker is suspected, .40 of the workers that
#: take 1.3 times as long are confirmed, where turns differ by 10 %, and .60 of those of 1.4 times at 15 %; in place of
#: .47 and .67.
ALIKE = 1.15


def is_confirmed(first: float, ratios: Sequence[float]) -> bool | None:
    """True if a worker is slow by its ratios to a good worker's time in turns; None until there are enough to tell.

    ``first`` is the ratio to its peers, for which it is suspected. What slows both, such as their machine, cancels.
    """
    if sum(ratio < ALIKE for ratio in ratios) >= TWICE:
        return False
    if len(ratios) >= TWICE and min(first, *ratios) >= MUCH_SLOWER:
        return True
    if len(ratios) < PAIRS:
        return None
    return median(ratios) >= THRESHOLD


def unsettled(subject: Subject, suspected: Mapping[Component, float]) -> list[Component]:
    """Components, of those suspected with a first ratio, that need more turns to tell whether the worker is slow."""
    return [
        component
        for component, first in suspected.items()
        if is_confirmed(first, subject.readings[component].beside) is None
    ]


def with_pair(subject: Subject, own: Mapping[Component, Reading], good: Mapping[Component, Reading]) -> Subject:
    """Worker with one more turn: readings of it and of a good worker, one right after the other."""
    readings = dict(subject.readings)
    for component in own.keys() & good.keys() & readings.keys():
        seconds, least = (component.seconds(readings[component].value) for readings in (own, good))
        if 0 < least < math.inf and seconds < math.inf:  # a failure in the short time that is left says nothing
            before = readings[component]
            readings[component] = replace(before, beside=(*before.beside, seconds / least))
    return replace(subject, readings=readings)
