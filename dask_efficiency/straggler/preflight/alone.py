"""Alone: how many times as long each worker takes as comparable ones for what was measured of it alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from dask_efficiency.straggler.peers import MIN_PEERS
from dask_efficiency.straggler.preflight.components import ALONE, MEANINGS, MIN_Z, THRESHOLD, Component, seconds_of
from dask_efficiency.straggler.preflight.links import RANGE_TO_BEST, fastest_half, median_of_fastest, spread_of_half
from dask_efficiency.straggler.preflight.subjects import Subject


@dataclass(frozen=True, slots=True)
class Comparison:
    """A worker in one component, beside its peers.

    Parameters
    ----------
    ratio
        How many times as long it takes as the median of the fastest half; infinite if it failed.
    low, median, high
        The same of its peers: the least, the median and the most.
    z
        Logarithm of the ratio in units of the spread of healthy workers.
    """

    ratio: float
    low: float
    median: float
    high: float
    z: float

    @property
    def is_slow(self) -> bool:
        """Whether it is so much slower that the worker is named."""
        return self.ratio >= THRESHOLD and self.z >= MIN_Z


def compare_alone(subjects: Iterable[Subject]) -> dict[str, dict[Component, Comparison]]:
    """Each worker by address beside the comparable ones, by component.

    Workers of a group of two have a ratio, and never enough of a ``z`` to be named: nobody can tell which one is slow.
    """
    groups: dict[str, list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(subject.group, []).append(subject)
    found: dict[str, dict[Component, Comparison]] = {}
    for group in groups.values():
        for component in ALONE:
            seconds = {
                one.address: seconds_of(component, one.readings[component].value)
                for one in group
                if component in one.readings
            }
            for address, comparison in _compared(component, seconds, _noise(component, group)).items():
                found.setdefault(address, {})[component] = comparison
    return found


def suspects(subjects: Iterable[Subject]) -> dict[str, list[Component]]:
    """Address to the components in which a worker seems slow, to be measured once more before it is named."""
    slow = {
        address: [component for component, one in of_worker.items() if one.is_slow and math.isfinite(one.ratio)]
        for address, of_worker in compare_alone(subjects).items()
    }
    return {address: components for address, components in slow.items() if components}


def _noise(component: Component, group: Iterable[Subject]) -> float:
    """Standard deviation of the best of three repetitions, as the repetitions of a usual worker show it."""
    ranges = [one.readings[component].range for one in group if component in one.readings]
    known = [extent for extent in ranges if math.isfinite(extent)]
    return RANGE_TO_BEST * median(known) if known else 0.0


def _compared(component: Component, seconds: dict[str, float], noise: float) -> dict[str, Comparison]:
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
        found[address] = Comparison(ratio, low, middle, high, z)
    return found
