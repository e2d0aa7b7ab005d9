"""MemoryTimeline: memory of a cluster and of each worker over time, beside its limit, in a bounded number of bins.

A bin has what there was when the worker's process, or the processes of all together, took most, so a peak that lasted
for one sample stays visible however wide the bins are by then. The cluster's parts are of one instant and add up. Of a
worker, the process is the most since the heartbeat before, and its results are those at the heartbeat.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.cluster.timeline import MAX_BINS
from dask_efficiency.accounts.memory import MemoryLevels
from dask_efficiency.accounts.rows import MAX_APART, OTHER

#: Width of the first bins, nanoseconds: the time between two new heartbeats. With its three numbers, a bin takes 24
#: bytes, and so a worker at most 1.4 kB a minute.
FIRST_WIDTH_NS = 1_000_000_000
#: Workers of a timeline that is sent: the fullest. A guess that bounds memory.
MAX_WORKERS = 100
#: Prefixes of a timeline; the others are together. By eye.
MAX_PREFIXES = 6


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """Bytes of one worker, or of the cluster, in each bin; they are zero while it is not there."""

    #: Memory limit, of the cluster that of the workers when most was taken; 0 without one.
    limit: int
    process: tuple[int, ...]
    #: Results in memory, and those on disk by their size in memory.
    managed: tuple[int, ...]
    spilled: tuple[int, ...]
    #: Of the cluster, results in memory by prefix, those with most first; they add up to ``managed``.
    prefixes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def unmanaged(self) -> tuple[int, ...]:
        """Process memory beyond results; negative where Dask estimates these as larger than they are."""
        return tuple(whole - held for whole, held in zip(self.process, self.managed, strict=True))

    @property
    def peak(self) -> int:
        """Most process memory."""
        return max(self.process, default=0)


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """Memory over time, bin by bin, each as it was when most was taken."""

    bin_ns: int
    elapsed_ns: int
    cluster: MemoryLine
    #: Workers by name, those nearest to their limit first.
    workers: Mapping[str, MemoryLine] = field(default_factory=dict)
    more_workers: int = 0

    @property
    def bins(self) -> int:
        """Number of bins."""
        return -(-self.elapsed_ns // self.bin_ns)


#: Process, managed and spilled bytes.
_Numbers = tuple[int, int, int]
#: Those of a worker that is not there.
_NOTHING: _Numbers = (0, 0, 0)
#: Managed bytes of the cluster by prefix, and the limit of its workers.
_Parts = tuple[Mapping[str, int], int]
_NO_PARTS: _Parts = (MappingProxyType({}), 0)


#: Prefixes that a live view names. By eye.
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class MemoryNow:
    """Memory of a cluster at one instant, in bytes, as of the last heartbeats."""

    process: int = 0
    managed: int = 0
    spilled: int = 0
    #: Of all workers; 0 if one has none.
    limit: int = 0
    #: Managed memory of the prefixes with most.
    prefixes: Mapping[str, int] = field(default_factory=dict)
    #: The worker nearest to its limit, its process memory, and its limit.
    fullest: str = ""
    fullest_process: int = 0
    fullest_limit: int = 0


@dataclass(frozen=True, slots=True)
class ClusterMemory:
    """Last memory of the workers that are there, and its sums."""

    levels: Mapping[Presence, MemoryLevels]
    numbers: _Numbers
    #: Managed bytes by prefix.
    prefixes: Mapping[str, int]
    #: 0 if a worker has none.
    limit: int

    @classmethod
    def of(cls, present: Iterable[Presence]) -> ClusterMemory:
        """Reading of the workers that have said anything."""
        levels = {presence: presence.memory for presence in present if presence.memory is not None}
        prefixes: dict[str, int] = {}
        for one in levels.values():  # a thousand workers at each round: no Counter, which takes several times as long
            for prefix, (held, _) in one.prefixes.items():
                prefixes[prefix] = prefixes.get(prefix, 0) + held
        process, managed, spilled = (
            sum(column) for column in zip(_NOTHING, *map(numbers_of, levels.values()), strict=True)
        )
        limits = [presence.loss.memory_limit or 0 for presence in levels]
        return cls(levels, (process, managed, spilled), prefixes, sum(limits) if all(limits) else 0)

    @property
    def now(self) -> MemoryNow:
        """The sums, and what stands out."""
        known = Counter({prefix: n for prefix, n in self.prefixes.items() if prefix != OTHER})
        shares = {one: levels.process / (one.loss.memory_limit or math.inf) for one, levels in self.levels.items()}
        if not shares:
            return MemoryNow()
        fullest = max(shares, key=shares.__getitem__)
        of_fullest = fullest.name, max(0, self.levels[fullest].process), fullest.loss.memory_limit or 0
        return MemoryNow(*self.numbers, self.limit, dict(known.most_common(MAX_NAMED)), *of_fullest)


class _Line:
    """One line while it is recorded."""

    def __init__(self, *, parts: bool = False) -> None:
        self.limit = 0
        #: Most process memory.
        self.peak = 0
        #: Three numbers for each bin: arrays of numpy take ten times as long, one number at a time.
        self.rows = array("q", bytes(24 * MAX_BINS))
        #: Managed bytes by prefix, and the limit, in each bin; None if they are not followed.
        self.parts: dict[int, _Parts] | None = {} if parts else None
        #: Bin of the last sample, and what holds until the next one.
        self._last = -1
        self._now: tuple[_Numbers, _Parts] = _NOTHING, _NO_PARTS

    def add(self, bin_: int, most: _Numbers, now: _Numbers, parts: _Parts = _NO_PARTS) -> None:
        """Note a sample: the most since the one before, and what there is now."""
        self.carry_to(bin_)
        self._now, self.peak = (now, parts), max(self.peak, most[0])
        at = 3 * bin_
        if most[0] >= self.rows[at]:
            self.rows[at], self.rows[at + 1], self.rows[at + 2] = most
            if self.parts is not None:
                self.parts[bin_] = parts

    def carry_to(self, bin_: int) -> None:
        """Fill the bins after the last sample up to this one, as nothing else came."""
        numbers, parts = self._now
        if 0 <= self._last < bin_:
            self.rows[3 * self._last + 3 : 3 * bin_ + 3] = array("q", numbers * (bin_ - self._last))
            if self.parts is not None:
                self.parts |= dict.fromkeys(range(self._last + 1, bin_ + 1), parts)
        self._last = max(self._last, bin_)

    def merge(self) -> None:
        """Merge neighbours: the higher one stays."""
        rows = self.rows
        higher = [2 * i + (rows[6 * i + 3] > rows[6 * i]) for i in range(MAX_BINS // 2)]
        merged = array("q", (number for i in higher for number in rows[3 * i : 3 * i + 3]))
        self.rows = merged + array("q", bytes(8 * len(merged)))
        if self.parts is not None:
            known = self.parts
            self.parts = {i // 2: known[i] for i in higher if i in known}
        self._last //= 2

    def line(self, first: int, stop: int) -> MemoryLine:
        """The bins from ``first`` until before ``stop``."""
        self.carry_to(stop - 1)
        process, managed, spilled = (tuple(self.rows[3 * first + i : 3 * stop : 3]) for i in range(3))
        if self.parts is None:
            return MemoryLine(self.limit, process, managed, spilled)
        parts = [self.parts.get(bin_, _NO_PARTS) for bin_ in range(first, stop)]
        _, limit = max(zip(process, (limit for _, limit in parts), strict=True), default=(0, 0))
        return MemoryLine(limit, process, managed, spilled, _by_prefix([row for row, _ in parts], managed))


class MemoryRecorder:
    """Sorts the workers' memory into bins, from ``at`` on."""

    def __init__(self, *, at: int) -> None:
        self._start, self._width = at, FIRST_WIDTH_NS
        self._cluster = _Line(parts=True)
        self._workers: dict[str, _Line] = {}
        self._seen: Mapping[Presence, MemoryLevels] | None = None

    def follow(self, reading: ClusterMemory, *, at: int) -> None:
        """Note what the workers said, if it is new."""
        here, seen = reading.levels, self._seen or {}
        if here == self._seen or at < self._start:
            return
        most_of = numbers_of if self._seen is None else _most  # peaks from before the start are none of its
        self._widen(at)
        bin_, self._seen = (at - self._start) // self._width, here
        for presence in seen.keys() - here.keys():
            if presence.name in self._workers:  # from here on, it is not there
                self._workers[presence.name].add(bin_, _NOTHING, _NOTHING)
        names = {presence.name for presence in here} if len(self._workers) + len(here) > MAX_APART else set()
        for presence, levels in here.items():
            if seen.get(presence) is not levels and (line := self._line_of(presence.name, names)) is not None:
                line.limit = presence.loss.memory_limit or 0
                line.add(bin_, most_of(levels), numbers_of(levels))
        self._cluster.add(bin_, reading.numbers, reading.numbers, (reading.prefixes, reading.limit))

    def _widen(self, at: int) -> None:
        """Make bins so wide that there is one for an instant."""
        while at - self._start >= MAX_BINS * self._width:
            for line in (self._cluster, *self._workers.values()):
                line.merge()
            self._width *= 2

    def _line_of(self, worker: str, present: Collection[str]) -> _Line | None:
        """Line of a worker; once there are too many, in place of the absent one that was furthest from its limit."""
        if worker not in self._workers and len(self._workers) >= MAX_APART:
            absent = self._workers.keys() - present
            if not absent:
                return None
            del self._workers[min(absent, key=lambda name: _fullness(self._workers[name]))]
        return self._workers.setdefault(worker, _Line())

    def timeline(self, *, at: int, start: int | None = None) -> MemoryTimeline:
        """The timeline until ``at``, without the bins that end before ``start``."""
        self._widen(at)
        width = self._width
        first = 0 if start is None else max(0, (start - self._start) // width)
        elapsed = max(1, at - self._start - first * width)
        stop = first - -elapsed // width
        lines = {name: line.line(first, stop) for name, line in self._workers.items()}
        ranked = sorted(lines, key=lambda name: _fullness(lines[name]), reverse=True)
        workers = {name: lines[name] for name in ranked[:MAX_WORKERS]}
        return MemoryTimeline(width, elapsed, self._cluster.line(first, stop), workers, len(ranked) - len(workers))


def _fullness(line: _Line | MemoryLine) -> tuple[float, int]:
    """Peak as a share of the limit, and in bytes."""
    return line.peak / (line.limit or math.inf), line.peak


def numbers_of(levels: MemoryLevels) -> _Numbers:
    """Bytes of a worker at its last sample; zero for what is not measured."""
    return max(0, levels.process), max(0, levels.held), max(0, levels.spilled)


def _most(levels: MemoryLevels) -> _Numbers:
    """Likewise, with the most that its process took since the sample before."""
    process, managed, spilled = numbers_of(levels)
    return max(process, levels.peak), managed, spilled


def _by_prefix(bins: Sequence[Mapping[str, int]], managed: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Managed bytes of the prefixes with most, and of the others, which are the rest of ``managed``."""
    totals: Counter[str] = Counter()
    for row in bins:
        totals.update(row)
    ranked = [prefix for prefix, total in totals.most_common() if prefix != OTHER and total]
    shown = {prefix: tuple(row.get(prefix, 0) for row in bins) for prefix in ranked[:MAX_PREFIXES]}
    rest = tuple(whole - sum(parts) for whole, *parts in zip(managed, *shown.values(), strict=True))
    return shown | ({OTHER: rest} if shown and any(rest) else {})
