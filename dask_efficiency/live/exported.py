"""Exported: which workers and prefixes Prometheus is told of one by one, so that they are few and seldom others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from operator import add, sub

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.worker.balance import OTHER, TASK_BUCKETS
from dask_efficiency.live.times import WorkerCounters, WorkerTimes

#: Of too many workers, so many that make most of their threads are exported, and so many that make least of them.
EXTREMES = 10

#: Time between two choices of these.
CHOOSE_NS = 60_000_000_000

#: What the time since the last choice counts for in a worker's useful share; all before it counts for the rest.
WEIGHT = 0.25

#: One that is exported stays unless another's useful share is further out by so much.
MARGIN = 0.05

#: Too many workers are no longer too many below this share of the limit.
ALL_AGAIN = 0.9

#: A prefix takes the place of one that is exported once it has taken so many times its thread time.
OVERTAKES = 1.25

_NOTHING = (0,) * len(TASK_BUCKETS)

Rows = Mapping[str, Sequence[int]]


class ExportedWorkers:
    """The workers that are exported: all, or of too many those that make most and least of their threads.

    These are chosen by the clock, so that it makes no difference who reads, and how often. Their counters are the
    accounts' own: one that is exported again goes on with what it has by then.
    """

    def __init__(self) -> None:
        #: Whether there are too many.
        self.limited = False
        self._chosen_at: int | None = None
        self._then: WorkerCounters | None = None
        #: Share of each worker's thread time with work that was useful lately, in [0, 1].
        self._useful: dict[str, float] = {}
        self._most: list[str] = []
        self._least: list[str] = []

    def names(self, cluster: ClusterLedger, *, at: int, at_most: int) -> set[str]:
        """The names of those that are there, or left a moment ago, and are exported now."""
        recent = cluster.recent_names(at=at)
        self.limited = len(recent) > at_most * (ALL_AGAIN if self.limited else 1)
        if not self.limited:
            return recent
        if self._chosen_at is None or at - self._chosen_at >= CHOOSE_NS:
            self._chosen_at = at
            self._choose(cluster, min(EXTREMES, at_most // 2))
        return recent & {*self._most, *self._least}

    def _choose(self, cluster: ClusterLedger, each: int) -> None:
        now = WorkerCounters.of(presence for presence in cluster.present.values() if not presence.off)
        lately = WorkerTimes.between(self._then, now)
        self._then = now
        useful = {}
        for name, share in zip(lately.names, lately.useful.tolist(), strict=True):
            before = self._useful.get(name, share)
            found = before if math.isnan(share) else before + WEIGHT * (share - before)
            if not math.isnan(found):  # it has had work
                useful[name] = found
        self._useful = useful
        self._most = _furthest(useful, self._most, each)
        rest = {name: -share for name, share in useful.items() if name not in self._most}
        self._least = _furthest(rest, self._least, each)


def _furthest(shares: Mapping[str, float], kept: Collection[str], at_most: int) -> list[str]:
    """The names of the largest shares; those that are kept stay unless others are larger by :data:`MARGIN`."""
    ranked = {**shares, **{name: shares[name] + MARGIN for name in kept if name in shares}}
    return nlargest(at_most, ranked, key=ranked.__getitem__)


class ExportedPrefixes:
    """The prefixes that took most thread time, and all others as one: together the totals, to the nanosecond.

    None of the series falls, and none grows by what was counted under another name before. So what a prefix took
    before it was exported stays under ``(other)``. Where another overtakes it, what was exported of it stands under
    ``(former 1)``, and its time from then on is among the others. The next one is added to that, under the name
    ``(former 2)``: as the same series it would grow at once by all that one ever took.
    """

    def __init__(self) -> None:
        #: What each prefix had taken when all were read last.
        self._then: Rows = {}
        #: Of those that are exported, what is among the others.
        self._before: dict[str, Sequence[int]] = {}
        #: What was exported of each, and of those that are no more.
        self._exported: dict[str, list[int]] = {}
        self._former: Sequence[int] = _NOTHING
        self._formers = 0

    def rows(self, cluster: ClusterLedger, *, at_most: int) -> dict[str, list[int]]:
        """Nanoseconds by name and :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`, as settled by now."""
        now = cluster.finalized_by_prefix()
        self._choose(now, at_most)
        self._exported = {name: list(map(sub, now[name], before)) for name, before in self._before.items()}
        self._then = now
        totals = cluster.finalized()
        told = [*map(sum, zip(self._former, *self._exported.values(), strict=True))]
        rest = [totals[bucket] - ns for bucket, ns in zip(TASK_BUCKETS, told, strict=True)]
        former = {f"(former {self._formers})": list(self._former)} if self._formers else {}
        return {**self._exported, **former, OTHER: rest}

    def _choose(self, now: Rows, at_most: int) -> None:
        took = {name: sum(row) for name, row in now.items() if not name.startswith("(")}  # not our own names
        chosen = nlargest(
            at_most, took, key=lambda name: (took[name] * (OVERTAKES if name in self._before else 1), name)
        )
        leaving = self._before.keys() - set(chosen)
        for name in leaving:
            del self._before[name]
            self._former = [*map(add, self._former, self._exported[name])]
        self._formers += bool(leaving)
        for name in chosen:
            self._before.setdefault(name, self._then.get(name, _NOTHING))
