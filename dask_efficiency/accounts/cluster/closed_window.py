"""ClosedWindow: the accounts of a cluster in a window that has ended; its facts by path of span, or of one client."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dask_efficiency.accounts.buckets import UNKNOWN, Bucket, cause_name
from dask_efficiency.accounts.cluster.span_shares import NOBODY, SpanShares
from dask_efficiency.accounts.details import MergedProfiles
from dask_efficiency.accounts.facts import Facts, FactsBuilder
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.rows import OTHER, cap

#: Rows of workers' answers that are kept by worker, span and prefix, and rows of what is known by span and prefix of
#: further workers together; of more, the bucket and cause. A guess: 2 MB and 4 MB.
MAX_FACTS = 100_000
#: Rows of these after which they are added up: some 5 ms of the scheduler's event loop.
MAX_NEW_ROWS = 30_000


class OthersTime:
    """Time of workers beyond a bound of rows, by span, prefix, bucket and cause of all of them."""

    def __init__(self) -> None:
        self._rows, self._room = FactsBuilder(), MAX_NEW_ROWS

    @property
    def is_full(self) -> bool:
        """True if more was known than is kept."""
        return len(self._rows) >= MAX_FACTS

    def add(self, facts: Facts) -> None:
        """Add what a worker's tasks held."""
        self._rows.append(facts)
        if len(self._rows) > self._room:
            self._room = len(self.merged()) + MAX_NEW_ROWS

    def merged(self) -> Facts:
        """Add all up; beyond :data:`MAX_FACTS` rows, the time is of no span and no known prefix."""
        merged, self._rows = self._rows.build().merged("span", "prefix", "bucket", "cause"), FactsBuilder()
        self._rows.append(merged.take(slice(MAX_FACTS)))
        self._rows.append(merged.take(slice(MAX_FACTS, None)), span="", prefix=OTHER)
        return self._rows.build()


@dataclass(slots=True)
class ClosedWindow:
    """Accounts of a window, in nanoseconds; its length is the mean of the workers' own, over their threads."""

    elapsed: int
    #: Part of it with work outstanding, and the part of that without any worker.
    outstanding: int
    no_workers: int = 0
    #: By span id; names are known where Dask is.
    facts: FactsBuilder = field(default_factory=FactsBuilder)
    spans: set[str] = field(default_factory=set)
    #: Time of free slots by bucket and cause, to be shared by spans.
    free: dict[tuple[str, str], int] = field(default_factory=dict)
    nthreads: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    #: Sums of the cluster by label, by :data:`~dask_efficiency.accounts.wire.snapshots.EXTRAS`.
    extras: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    attendance: dict[str, int] = field(default_factory=dict)
    losses: list[dict[str, Any]] = field(default_factory=list)
    not_measured: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    #: By worker name, between its snapshots at the window's ends, or the last that came.
    gpu: dict[str, GpuTotals] = field(default_factory=dict)
    others_share: float | None = None
    profiles: MergedProfiles = field(default_factory=MergedProfiles)


def share_free_time(closed: ClosedWindow, shares: SpanShares) -> None:
    """Say of which spans the free time was, of all workers together; once."""
    free, closed.free = closed.free, {}
    for (bucket, cause), ns in free.items():
        name = cause_name(bucket, cause or UNKNOWN) if bucket == Bucket.IDLE else bucket
        for span, part in shares.divide(name, ns).items():
            if span != NOBODY:
                closed.spans.add(span)
                closed.facts.move(part, {"bucket": bucket, "cause": cause}, span=span)


def by_path(time: Facts, paths: Mapping[str, str]) -> Facts:
    """Name the spans of thread time by path in place of their ids; ``paths`` has the name of no span, too."""
    ids = np.unique(time.rows.span).tolist()
    of_ids = [paths[time.names[at]] for at in ids]
    places = {name: at for at, name in enumerate(dict.fromkeys((*time.names, *of_ids)))}
    to = np.zeros(len(time.names), np.int32)
    to[ids] = [places[path] for path in of_ids]
    return Facts(tuple(places), replace(time.rows, span=to[time.rows.span]))


def of_spans(time: Facts, own: Collection[str]) -> Facts:
    """Thread time of these spans, by their ids, and their share of each worker's free time; all workers stay."""
    rows = time.rows
    nobodys = (rows.span == 0) & (rows.prefix == 0)
    mine = time.take(time.named("span", own))
    builder = FactsBuilder()
    builder.append(time.take(nobodys & (rows.value == 0)))
    builder.append(mine)
    of_workers: dict[tuple[str, str], dict[str, int]] = {}
    for (worker, bucket, cause), ns in time.take(nobodys).sums("worker", "bucket", "cause").items():
        if worker and ns > 0:
            of_workers.setdefault((bucket, cause), {})[worker] = ns
    # What is known of all workers together is each one's in proportion.
    for (bucket, cause), ns in mine.take(mine.rows.worker == 0).sums("bucket", "cause").items():
        for worker, part in cap(of_workers.get((bucket, cause), {}), ns).items():
            builder.move(part, {"bucket": bucket, "cause": cause}, worker=worker)
    return builder.build()
