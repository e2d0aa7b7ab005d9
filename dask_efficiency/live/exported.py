"""Choice of the workers and prefixes that are exported one by one: few and stable."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest
from operator import add, sub

from dask_efficiency.accounts.cluster.cluster import RECENT_NS, ClusterLedger
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.live.times import Rows, WorkerTimes

#: Workers exported at each end, the most and the least useful, if there are too many for all. A guess.
EXTREMES = 10
#: Weight of the time since the last choice in a worker's useful share (exponential smoothing). A guess.
WEIGHT = 0.25
#: An exported worker stays unless another's useful share is further out by this. A guess.
MARGIN = 0.05
#: After a limit was exceeded, all workers are exported again below this share of it (hysteresis). A guess.
ALL_AGAIN = 0.9
#: A prefix replaces an exported one when it has taken this many times its thread time (hysteresis). A guess.
OVERTAKES = 1.25
_NOTHING = (0,) * len(TASK_BUCKETS)


class ExportedWorkers:
    """Workers to export: all, or if there are too many, the most and least useful.

    Chosen by the clock, so the choice does not depend on who scrapes and how often. Counters are those of the accounts:
    a worker that is exported again continues with its current totals.
    """

    def __init__(self) -> None:
        #: True if there are too many to export all.
        self.limited = False
        self._chosen_at: int | None = None
        self._then = WorkerTimes.of(())
        #: Smoothed useful share of each worker's thread time with work, in [0, 1].
        self._useful: dict[str, float] = {}
        self._most: list[str] = []
        self._least: list[str] = []

    def names(self, cluster: ClusterLedger, *, at: int, at_most: int) -> set[str]:
        """Names of the workers that are present or left a moment ago, and are exported."""
        recent = cluster.recent_names(at=at)
        self.limited = len(recent) > at_most * (ALL_AGAIN if self.limited else 1)
        if not self.limited:
            return recent
        if self._chosen_at is None or at - self._chosen_at >= RECENT_NS:
            self._chosen_at = at
            self._choose(cluster, min(EXTREMES, at_most // 2))
        return recent & {*self._most, *self._least}

    def _choose(self, cluster: ClusterLedger, each: int) -> None:
        now = WorkerTimes.of(presence for presence in cluster.present.values() if not presence.off)
        lately = now.since(self._then)
        self._then = now
        before, useful = self._useful, {}
        for name, share in zip(lately.names, lately.useful.tolist(), strict=True):
            if not math.isnan(share):
                useful[name] = before.get(name, share) + WEIGHT * (share - before.get(name, share))
            elif name in before:  # without work
                useful[name] = before[name]
        self._useful = useful
        self._most = _furthest(useful, self._most, each)
        rest = {name: -share for name, share in useful.items() if name not in self._most}
        self._least = _furthest(rest, self._least, each)


def _furthest(shares: Mapping[str, float], kept: Collection[str], at_most: int) -> list[str]:
    """Names with the largest shares; those in ``kept`` stay unless others are larger by :data:`MARGIN`."""
    ranked = {**shares, **{name: shares[name] + MARGIN for name in kept if name in shares}}
    return nlargest(at_most, ranked, key=ranked.__getitem__)


class ExportedPrefixes:
    """Prefixes with most thread time, and the rest as one row; together exactly the totals.

    No series may fall, or grow by time that was counted under another name. So what a prefix took before it was
    exported stays in ``(other)``. When another prefix overtakes it, what was exported of it moves to ``(former 1)``,
    and its later time goes to ``(other)``. The next one is added to that sum as ``(former 2)``: under the old name the
    series would jump by all that this prefix ever took.
    """

    def __init__(self) -> None:
        #: Totals of each prefix at the last scrape.
        self._then: Rows = {}
        #: Time of each exported prefix that stays in ``(other)``.
        self._before: dict[str, Sequence[int]] = {}
        #: Time exported of each prefix, and of all former ones together.
        self._exported: dict[str, list[int]] = {}
        self._former: Sequence[int] = _NOTHING
        self._formers = 0

    def rows(self, cluster: ClusterLedger, *, at_most: int) -> dict[str, list[int]]:
        """Settled nanoseconds by name and :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`."""
        now = cluster.finalized_by_prefix()
        self._choose(now, at_most)
        self._exported = {name: list(map(sub, now[name], before)) for name, before in self._before.items()}
        self._then = now
        totals = cluster.part("finalized")
        exported = [*map(sum, zip(self._former, *self._exported.values(), strict=True))]
        rest = [totals[bucket] - ns for bucket, ns in zip(TASK_BUCKETS, exported, strict=True)]
        former = {f"(former {self._formers})": list(self._former)} if self._formers else {}
        return {**self._exported, **former, OTHER: rest}

    def _choose(self, now: Rows, at_most: int) -> None:
        took = {name: sum(row) for name, row in now.items() if not name.startswith("(")}  # not our own rows
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
