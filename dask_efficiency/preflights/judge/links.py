"""Links between workers: which workers, or which paths between groups of them, are slow by what pairs showed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from dask_efficiency.preflights.judge.readings import MIN_LATENCY_SECONDS, THRESHOLD, TWICE, Component
from dask_efficiency.straggler.peers import THREE_SIGMA, healthy_spread

#: Slow pairs, none of them fast, that make a worker slow, if it finds as many partners; of two, one may be chance.
#: A guess.
SLOW_PAIRS = 3
#: Other suspects that a suspect meets at most; and good workers, at least, with which those in doubt after a first look
#: are measured, so that their fastest half is a reference. A guess.
SOME_OTHERS = 4


@dataclass(frozen=True, slots=True)
class MeasuredPair:
    """Measurements of one pair of workers."""

    first: str
    second: str
    #: By component, seconds of the first for a unit of work with the second: ``send`` is from the first to the second,
    #: ``receive`` the way back. Empty if the pair failed.
    seconds: Mapping[Component, float]
    #: Number of repetitions; one in a first look.
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class SlowPath:
    """Two groups of workers, sorted, that are fast within themselves, and slow in every pair across."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    #: Ratio of the fastest pair across to the reference.
    ratio: float
    #: Number of measured pairs across.
    pairs: int


class MeasuredPairs:
    """Verdicts that follow from the measured pairs.

    A pair is fast only if both workers and the path between them are. So one fast pair clears a worker, and workers
    connected by fast pairs are a group. A worker is slow if it has no fast pair, though it met members of each group
    and the others without any: these may be fast among themselves, behind a slow path.

    Once some links have several repetitions, those of the first look count no more: the best of several is compared
    with its like. Until all pairs are measured (``final``), most workers may have met slow ones only: the reference is
    then the median of the fastest quarter, and the spread that which is assumed of the component.
    """

    def __init__(self, links: Sequence[MeasuredPair], *, final: bool = True) -> None:
        self.links = tuple(link for link in links if link.repeats > 1) or tuple(links)
        #: By worker, its best seconds by component; and the same with those of the first look.
        self._best, self._shown = _best(self.links), _best(links)
        #: By component, seconds of the median of the fastest half of the workers, each at its best; and the ratio to
        #: it that is slow: higher where healthy workers differ much.
        self.reference: dict[Component, float] = {}
        self.thresholds: dict[Component, float] = {}
        for name in dict.fromkeys(name for best in self._best.values() for name in best):
            seconds = [best[name] for best in self._best.values() if name in best]
            self.reference[name] = median_of_fastest(seconds, 2 if final else 4)
            ratios = [self.ratio(name, took) for took in seconds]
            spread = healthy_spread(np.log(ratios), 0.0) if final else 0.0
            self.thresholds[name] = max(
                THRESHOLD, math.exp(THREE_SIGMA * math.hypot(np.nan_to_num(spread), name.spread))
            )
        self._partners: dict[str, set[str]] = {}
        #: Lowest cost of each worker's pairs.
        self._least: dict[str, float] = {}
        #: Workers connected by fast pairs, by worker.
        connected: dict[str, set[str]] = {}
        for link in self.links:
            cost = self._cost(link)
            for worker, partner in ((link.first, link.second), (link.second, link.first)):
                self._partners.setdefault(worker, set()).add(partner)
                self._least[worker] = min(cost, self._least.get(worker, math.inf))
            if cost < 1:
                first, second = (connected.get(worker, {worker}) for worker in (link.first, link.second))
                if first is not second:
                    connected |= dict.fromkeys(both := first | second, both)
        groups = map(frozenset, {id(group): group for group in connected.values()}.values())
        #: The groups of these, the largest first.
        self.groups = sorted(groups, key=lambda group: (-len(group), min(group)))
        self._group = {worker: number for number, group in enumerate(self.groups) for worker in group}
        #: Workers with pairs, none of them fast.
        self.suspects = frozenset(self._partners) - self._group.keys()

    def ratio(self, component: Component, seconds: float) -> float:
        """Ratio of a time to the reference; round trips below Dask's own time are equal."""
        least = MIN_LATENCY_SECONDS if component is Component.LATENCY else 0.0
        return max(seconds, least) / max(self.reference[component], least)

    def _cost(self, link: MeasuredPair) -> float:
        """Worst distance of a pair from the reference, as a multiple of the threshold, in logarithms."""
        ratios = {name: self.ratio(name, seconds) for name, seconds in link.seconds.items()}
        scores = (math.log(ratio) / math.log(self.thresholds[name]) for name, ratio in ratios.items())
        return max(scores, default=math.inf)

    # -- of one worker -----------------------------------------------------------------------

    def partners(self, worker: str) -> Collection[str]:
        """Partners of a worker."""
        return self._partners.get(worker, frozenset())

    def least(self, worker: str) -> float:
        """Lowest cost of a worker's pairs; infinite without any."""
        return self._least.get(worker, math.inf)

    def is_good(self, worker: str) -> bool:
        """True if a worker was in a fast pair."""
        return worker in self._group

    def unmet(self, worker: str) -> list[frozenset[str]]:
        """Sets of workers of which a suspect must meet one each: each group, and some other suspects."""
        partners = frozenset(self.partners(worker))
        others = [group for group in self.groups if not group & partners]
        if len(partners & self.suspects) < SOME_OTHERS:
            others += [frozenset((suspect,)) for suspect in self.suspects - partners - {worker}]
        return others

    def is_settled(self, worker: str) -> bool:
        """True once it is known whether a worker is slow."""
        return self.is_good(worker) or (len(self.partners(worker)) >= SLOW_PAIRS and not self.unmet(worker))

    def readings(self, worker: str) -> dict[Component, float]:
        """Best seconds of a worker, by component."""
        return self._shown.get(worker, {})

    def to_confirm(self) -> Iterator[tuple[str, str]]:
        """Pairs to measure again before anybody is named: slow workers with a good one, and slow paths."""
        for worker in self.slow_workers():
            good = sorted((partner for partner in self._group if partner in self._partners[worker]), key=self.least)
            yield from ((worker, partner) for partner in good[:1])
        for across in self._crossings().values():
            link = min(across.values(), key=self._cost)
            yield link.first, link.second

    # -- verdict -----------------------------------------------------------------------------

    def slow_workers(self) -> dict[str, dict[Component, float]]:
        """Suspects that met everybody they had to; with fewer partners nobody can tell, so of two neither is slow.

        Each with the ratio of the best of its pairs, by component in which all were slow; without any if all failed.
        """
        by_worker = {}
        for worker in sorted(self.suspects):
            if not self.groups or self.unmet(worker) or len(self._partners[worker]) < TWICE:
                continue
            ratios = {name: self.ratio(name, seconds) for name, seconds in self._best[worker].items()}
            slow = {name: ratio for name, ratio in ratios.items() if ratio >= self.thresholds[name]}
            if slow or not ratios:  # else it was slow in one component with one, and in another with the next
                by_worker[worker] = slow
        return by_worker

    def slow_paths(self) -> list[SlowPath]:
        """Paths between two groups with slow pairs across."""
        paths = []
        for (left, right), across in self._crossings().items():
            if len(across) >= TWICE:
                first, second = (tuple(sorted(self.groups[number])) for number in (left, right))
                worst = [[self.ratio(name, took) for name, took in link.seconds.items()] for link in across.values()]
                ratio = min(max(ratios, default=math.inf) for ratios in worst)
                paths.append(SlowPath(first, second, ratio, len(across)))
        return paths

    def doubtful_paths(self) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        """Pairs of groups with too few pairs across to tell."""
        for (left, right), across in self._crossings().items():
            if len(across) < TWICE:
                yield self.groups[left], self.groups[right]

    def divided(self) -> list[frozenset[str]]:
        """Groups with slow pairs to another group."""
        return [self.groups[number] for number in sorted({number for two in self._crossings() for number in two})]

    def _crossings(self) -> dict[tuple[int, int], dict[frozenset[str], MeasuredPair]]:
        """Pairs across, each at its best, by the numbers of two groups; a fast one would have merged the groups."""
        crossings: dict[tuple[int, int], dict[frozenset[str], MeasuredPair]] = {}
        for link in sorted(self.links, key=self._cost, reverse=True):
            left, right = (self._group.get(worker) for worker in (link.first, link.second))
            if left is not None and right is not None and left != right:
                crossings.setdefault((min(left, right), max(left, right)), {})[frozenset((link.first, link.second))] = (
                    link
                )
        return crossings


#: One worker of a pair sends, the other receives.
_BACK = {Component.SEND: Component.RECEIVE, Component.RECEIVE: Component.SEND}


def _best(links: Iterable[MeasuredPair]) -> dict[str, dict[Component, float]]:
    by_worker: dict[str, dict[Component, float]] = {}
    for link in links:
        first, second = (by_worker.setdefault(worker, {}) for worker in (link.first, link.second))
        for name, seconds in link.seconds.items():
            for best, seen in ((first, name), (second, _BACK.get(name, name))):
                best[seen] = min(seconds, best.get(seen, math.inf))
    return by_worker


def median_of_fastest(seconds: Sequence[float], share: int = 2) -> float:
    """Median of the fastest half, which fewer slow ones do not move, or of ``1 / share`` of all, of two at least."""
    half = sorted(seconds)[: (len(seconds) + 1) // 2]  # with the middle one
    return median(half if share == 2 else half[: max(2, -(-len(seconds) // share))])
