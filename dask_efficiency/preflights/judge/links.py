"""Links between workers: which workers, or which paths between groups of them, are slow by what pairs showed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dask_efficiency.preflights.judge.readings import MEANINGS, MIN_LATENCY_SECONDS, MIN_Z, THRESHOLD, Component

#: Slow pairs across two groups, none of them fast, that make their path slow: one may be chance.
MIN_CROSSING = 2

#: Slow pairs, none of them fast, that make a worker slow, if it finds so many partners; and at least.
SLOW_PAIRS = 3
MIN_SLOW_PAIRS = 2

#: Other suspects that a suspect meets at most, for that.
ENOUGH_SUSPECTS = 4


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """What one pair of workers showed.

    Parameters
    ----------
    first, second
        The workers.
    seconds
        By component, how long the first took for a unit of work with the second: ``send`` is from the first to the
        second, ``receive`` the way back. Empty where the pair failed.
    range
        Logarithm of the largest repetition over the least; NaN where that is not known.
    """

    first: str
    second: str
    seconds: Mapping[Component, float]
    range: float = math.nan


@dataclass(frozen=True, slots=True)
class SlowInPairs:
    """A worker whose pairs were all slow.

    Parameters
    ----------
    worker
        The worker.
    ratios
        By component in which all its pairs were slow, how many times as long the best took; empty where all failed.
    pairs
        How many partners it had.
    """

    worker: str
    ratios: Mapping[Component, float]
    pairs: int


@dataclass(frozen=True, slots=True)
class SlowPath:
    """Two groups of workers that are fast among themselves, and slow in every pair across.

    Parameters
    ----------
    one, other
        The workers of each group, sorted.
    ratio
        How many times as long the fastest pair across took as the reference.
    pairs
        How many pairs across were measured.
    """

    one: tuple[str, ...]
    other: tuple[str, ...]
    ratio: float
    pairs: int


class MeasuredPairs:
    """The pairs that were measured, and what follows from them.

    A pair is fast only if both workers and the path between them are. So one fast pair clears a worker, and workers
    that fast pairs connect are a group. A worker is slow that has no fast pair, though it met members of each group and
    the others that have none: these may be fast among themselves, behind a slow path.

    Parameters
    ----------
    links
        One for each pair.
    final
        Whether all pairs are measured. Before that, most workers may have met slow ones only: then how much the fastest
        half differ does not tell how much healthy workers do, and the least threshold holds.
    """

    def __init__(self, links: Sequence[MeasuredPair], *, final: bool = True) -> None:
        self.links = tuple(links)
        self._final = final
        #: By worker, the best that it showed, seconds by component.
        self._best: dict[str, dict[Component, float]] = {}
        for link in self.links:
            for worker in (link.first, link.second):
                best = self._best.setdefault(worker, {})
                for name, seconds in _as_seen_by(worker, link):
                    best[name] = min(seconds, best.get(name, math.inf))
        #: By component, seconds of the median of the fastest half of the workers, each at its best.
        self.reference = self._references()
        #: By component, how many times the reference is slow: more where healthy workers differ much.
        self.thresholds = self._thresholds()
        #: Of each pair, what it was worst in: how far from the reference, as a multiple of what is slow, in logarithms.
        self.costs = tuple(self._cost(link) for link in self.links)
        self._partners: dict[str, set[str]] = {}
        #: The lowest cost of the pairs of each worker that had any.
        self._least: dict[str, float] = {}
        for link, cost in zip(self.links, self.costs, strict=True):
            for one, other in ((link.first, link.second), (link.second, link.first)):
                self._partners.setdefault(one, set()).add(other)
                self._least[one] = min(cost, self._least.get(one, math.inf))
        #: Workers that fast pairs connect, the largest group first.
        self.groups = self._connected()
        self._group = {worker: number for number, group in enumerate(self.groups) for worker in group}
        #: Workers that were in pairs, none of them fast.
        self.suspects = frozenset(self._partners) - self._group.keys()

    def _references(self) -> dict[Component, float]:
        found: dict[Component, list[float]] = {}
        for best in self._best.values():
            for name, seconds in best.items():
                found.setdefault(name, []).append(seconds)
        return {name: median_of_fastest(seconds) for name, seconds in found.items()}

    def ratio(self, component: Component, seconds: float) -> float:
        """How many times as long as the reference something took; what Dask itself takes for a round trip is alike."""
        least = MIN_LATENCY_SECONDS if component is Component.LATENCY else 0.0
        return max(seconds, least) / max(self.reference[component], least)

    def _thresholds(self) -> dict[Component, float]:
        known = [link.range for link in self.links if math.isfinite(link.range)]
        noise = RANGE_TO_BEST * median(known) if known and self._final else 0.0
        found = {}
        for name in self.reference:
            half = fastest_half([best[name] for best in self._best.values() if name in best])
            spread = spread_of_half([math.log(self.ratio(name, seconds)) for seconds in half]) if self._final else 0.0
            found[name] = max(THRESHOLD, math.exp(MIN_Z * math.hypot(spread, noise, MEANINGS[name].spread)))
        return found

    def _cost(self, link: MeasuredPair) -> float:
        scores = (
            math.log(self.ratio(name, seconds)) / math.log(self.thresholds[name])
            for name, seconds in link.seconds.items()
        )
        return max(scores, default=math.inf)

    def _ratio(self, link: MeasuredPair) -> float:
        """How many times as long a pair took as the reference in what it was worst in."""
        return max((self.ratio(name, seconds) for name, seconds in link.seconds.items()), default=math.inf)

    def _connected(self) -> tuple[frozenset[str], ...]:
        parent = {worker: worker for worker in self._partners}

        def root(worker: str) -> str:
            while parent[worker] != worker:
                parent[worker] = parent[parent[worker]]
                worker = parent[worker]
            return worker

        for link, cost in zip(self.links, self.costs, strict=True):
            if cost < 1:
                parent[root(link.first)] = root(link.second)
        found: dict[str, set[str]] = {}
        for worker in parent:
            found.setdefault(root(worker), set()).add(worker)
        groups = (frozenset(group) for group in found.values() if len(group) > 1)
        return tuple(sorted(groups, key=lambda group: (-len(group), min(group))))

    # -- of one worker -----------------------------------------------------------------------

    def partners(self, worker: str) -> Collection[str]:
        """Whom a worker was paired with."""
        return self._partners.get(worker, frozenset())

    def least(self, worker: str) -> float:
        """The lowest cost of a worker's pairs; infinite where it had none."""
        return self._least.get(worker, math.inf)

    def is_good(self, worker: str) -> bool:
        """Whether a worker was in a fast pair."""
        return worker in self._group

    def unmet(self, worker: str) -> list[frozenset[str]]:
        """Sets of workers, such that it is not known whether a suspect is slow until it has met one of each.

        Each group, and each other suspect, if there are not so many that some will do.
        """
        partners = frozenset(self.partners(worker))
        others = [group for group in self.groups if not group & partners]
        if len(partners & self.suspects) < ENOUGH_SUSPECTS:
            others += [frozenset((one,)) for one in self.suspects - partners - {worker}]
        return others

    def is_settled(self, worker: str) -> bool:
        """Whether it is known whether a worker is slow."""
        return self.is_good(worker) or (len(self.partners(worker)) >= SLOW_PAIRS and not self.unmet(worker))

    def readings(self, worker: str) -> dict[Component, float]:
        """The best that a worker showed, seconds by component."""
        return dict(self._best.get(worker, {}))

    def to_confirm(self) -> Iterator[tuple[str, str]]:
        """Pairs to be measured once more before anybody is named: each slow worker with a good one, and slow paths."""
        for slow in self.slow_workers():
            good = sorted((worker for worker in self._group if worker in self._partners[slow.worker]), key=self.least)
            yield from ((slow.worker, one) for one in good[:1])
        for across in self._crossings().values():
            link = min(across, key=self._cost)
            yield link.first, link.second

    # -- verdict -----------------------------------------------------------------------------

    def slow_workers(self) -> list[SlowInPairs]:
        """Suspects that met whom they had to.

        With fewer partners than that, nobody can tell; so of two workers neither is slow.
        """
        found = []
        for worker in sorted(self.suspects):
            partners = self._partners[worker]
            if not self.groups or self.unmet(worker) or len(partners) < MIN_SLOW_PAIRS:
                continue
            best = self.readings(worker)
            ratios = {name: self.ratio(name, seconds) for name, seconds in best.items()}
            slow = {name: ratio for name, ratio in ratios.items() if ratio >= self.thresholds[name]}
            if slow or not ratios:  # else it was slow in one component with one, and in another with the next
                found.append(SlowInPairs(worker, slow, len(partners)))
        return found

    def slow_paths(self) -> list[SlowPath]:
        """Each two groups with slow pairs across."""
        found = []
        for (one, other), across in self._crossings().items():
            if len(across) >= MIN_CROSSING:
                first, second = (tuple(sorted(self.groups[number])) for number in (one, other))
                found.append(SlowPath(first, second, min(map(self._ratio, across)), len(across)))
        return found

    def doubtful_paths(self) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        """Each two groups with too few pairs across to tell."""
        for (one, other), across in self._crossings().items():
            if len(across) < MIN_CROSSING:
                yield self.groups[one], self.groups[other]

    def _crossings(self) -> dict[tuple[int, int], list[MeasuredPair]]:
        """The pairs across, by the numbers of two groups; a fast one would have made the two groups one."""
        found: dict[tuple[int, int], list[MeasuredPair]] = {}
        for link in self.links:
            one, other = (self._group.get(worker) for worker in (link.first, link.second))
            if one is not None and other is not None and one != other:
                found.setdefault((min(one, other), max(one, other)), []).append(link)
        return found


#: What one worker of a pair sends, the other receives.
_BACK = {Component.SEND: Component.RECEIVE, Component.RECEIVE: Component.SEND}


def _as_seen_by(worker: str, link: MeasuredPair) -> Iterable[tuple[Component, float]]:
    for name, seconds in link.seconds.items():
        yield (name if worker == link.first else _BACK.get(name, name)), seconds


def median_of_fastest(seconds: Sequence[float]) -> float:
    """The median of the fastest half, which slow ones do not move while they are fewer than half."""
    half = fastest_half(seconds)
    middle = len(half) // 2
    return half[middle] if len(half) % 2 else (half[middle - 1] + half[middle]) / 2


#: From the range of three normal values to the standard deviation of the best of them: 0.75 of one, where the range is
#: 1.69.
RANGE_TO_BEST = 0.44

#: From the spread of a fastest half about its median to that of all: the half of a normal distribution has 0.6 of it.
HALF_TO_WHOLE = 1.66


def spread_of_half(logs: Sequence[float]) -> float:
    """Standard deviation of all, from the fastest half's logarithms relative to its median."""
    return HALF_TO_WHOLE * math.sqrt(sum(value * value for value in logs) / len(logs))


def fastest_half(seconds: Sequence[float]) -> list[float]:
    """The fastest half, and the one in the middle, in order."""
    return sorted(seconds)[: (len(seconds) + 1) // 2]
