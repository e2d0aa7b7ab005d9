"""Alone: how many times as long each worker takes as comparable ones for what was measured of it alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dask_efficiency.straggler.peers import MIN_PEERS
from dask_efficiency.straggler.preflight.components import ALONE, MEANINGS, THRESHOLD, Component, seconds_of
from dask_efficiency.straggler.preflight.links import fastest_half, median_of_fastest
from dask_efficiency.straggler.preflight.subjects import Subject

#: A worker is slow that is so many spreads of the fastest half from their median: where healthy workers differ much, it
#: takes more than the threshold. One normal value in 700 is so far out on this side.
MIN_Z = 3.0

#: From the spread of a fastest half about its median to that of all: the half of a normal distribution has 0.6 of it.
HALF_TO_WHOLE = 1.66


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
            for address, comparison in _compared(component, seconds).items():
                found.setdefault(address, {})[component] = comparison
    return found


def suspects(subjects: Iterable[Subject]) -> dict[str, list[Component]]:
    """Address to the components in which a worker seems slow, to be measured once more before it is named."""
    slow = {
        address: [component for component, one in of_worker.items() if one.is_slow and math.isfinite(one.ratio)]
        for address, of_worker in compare_alone(subjects).items()
    }
    return {address: components for address, components in slow.items() if components}


def _compared(component: Component, seconds: dict[str, float]) -> dict[str, Comparison]:
    known = [value for value in seconds.values() if math.isfinite(value)]
    reference = median_of_fastest(known) if known else math.inf
    if not 0 < reference < math.inf:  # it failed everywhere: that is no worker's fault
        return {}
    half = [math.log(value / reference) for value in fastest_half(known)]
    spread = HALF_TO_WHOLE * math.sqrt(sum(value * value for value in half) / len(half))
    scale = math.hypot(spread, MEANINGS[component].spread)
    found = {}
    for address, value in seconds.items():
        peers = sorted(other / reference for name, other in seconds.items() if name != address)
        ratio = value / reference
        z = (math.log(ratio) if math.isfinite(ratio) else math.inf) / scale if len(seconds) >= MIN_PEERS else 0.0
        middle = peers[len(peers) // 2] if peers else math.nan
        low, high = (peers[0], peers[-1]) if peers else (math.nan, math.nan)
        found[address] = Comparison(ratio, low, middle, high, z)
    return found
