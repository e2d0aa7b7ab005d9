"""Views of a report's facts: the thread time and its causes by worker, prefix and span, and what is beside it."""

from __future__ import annotations

from collections.abc import Mapping

from dask_efficiency.accounts.buckets import CAUSE_NAMES, CAUSES, Breakdown, Bucket, cause_name
from dask_efficiency.accounts.facts import AMOUNTS, DETAILS, OUTSIDE, Facts
from dask_efficiency.accounts.metered import BYTE_SECONDS, BYTES, COUNT, SECONDS, WAYS
from dask_efficiency.report.memory import MemoryOfWorker, byte_seconds, memory_by_worker
from dask_efficiency.report.values import Amount, MeteredRow

#: Whole numbers of a unit, where these are parts of it: nanoseconds, and byte-milliseconds.
_PARTS = {SECONDS: 1e9, BYTE_SECONDS: 1e3}
_OF_CLUSTER = frozenset({OUTSIDE, DETAILS, AMOUNTS})


class FactViews:
    """Properties that are read off the facts of a report."""

    __slots__ = ()

    facts: Facts

    @property
    def by_worker(self) -> Mapping[str, Breakdown]:
        """Breakdown of each worker; holds every thread-second of the window."""
        return self.facts.by_worker

    @property
    def by_prefix(self) -> Mapping[str, Breakdown]:
        """Time held by tasks of each prefix; under ``lost-worker``, that of tasks on lost workers."""
        return self.facts.by_prefix

    @property
    def by_span(self) -> Mapping[str, Breakdown]:
        """All time by span; empty in retrospect.

        A span ("outer") includes its inner ones ("outer/inner"), so top-level spans add up to ``by_worker``. "(other
        work)" has other clients' spans and work from before the window; "(no span)" ``no-work``, ``lost-worker``,
        ``unmeasured``, and tasks known from heartbeats only. Free slots are shared equally, at any instant, by the
        spans of a level with work, a span's own tasks counting as one more.
        """
        return self.facts.by_span

    @property
    def causes_by_worker(self) -> Mapping[str, Mapping[str, int]]:
        """Nanoseconds by cause, of the buckets of :data:`~dask_efficiency.accounts.buckets.CAUSES`, and add up to them.

        Names are those of :func:`~dask_efficiency.accounts.buckets.cause_name`.
        """
        return self.facts.causes_by_worker

    @property
    def causes_by_prefix(self) -> Mapping[str, Mapping[str, int]]:
        """Nanoseconds of ``thread-noncpu`` by cause, which add up to it in ``by_prefix``."""
        return self.facts.causes_by_prefix

    @property
    def causes_by_span(self) -> Mapping[str, Mapping[str, int]]:
        """Nanoseconds of ``thread-noncpu`` and ``idle`` by cause, which add up to these in ``by_span``."""
        return self.facts.causes_by_span

    @property
    def outside(self) -> Mapping[str, float]:
        """Seconds by activity outside the thread slots; in no sum."""
        return self._of_cluster(OUTSIDE)

    @property
    def details(self) -> Mapping[str, float]:
        """Seconds within buckets in more detail; in no sum."""
        return self._of_cluster(DETAILS)

    @property
    def moved(self) -> Mapping[str, Amount]:
        """Bytes and counts of results and shuffles' messages, by :data:`~dask_efficiency.accounts.metered.WAYS`."""
        sums = self.facts.labelled.take(self.facts.labelled.named("bucket", {AMOUNTS})).sums("label", "unit")
        found = {way: Amount(*(sums.get((way, unit), 0) for unit in (BYTES, COUNT))) for way in WAYS}
        return {way: amount for way, amount in found.items() if amount.count}

    @property
    def metered(self) -> tuple[MeteredRow, ...]:
        """Counts of Dask's ``context_meter`` by label, beyond seconds that are in buckets; empty in retrospect."""
        rows = self.facts.labelled.take(~self.facts.labelled.named("bucket", _OF_CLUSTER))
        sums = rows.sums("worker", "bucket", "span", "prefix", "label", "unit")
        return tuple(
            MeteredRow(worker, context, span, prefix, label, unit, value / _PARTS.get(unit, 1.0))
            for (worker, context, span, prefix, label, unit), value in sums.items()
        )

    @property
    def memory(self) -> Mapping[str, MemoryOfWorker]:
        """Memory of each worker; empty in retrospect."""
        return memory_by_worker(self.metered)

    @property
    def byte_seconds(self) -> Mapping[str, tuple[float, float]]:
        """Byte-seconds of results in memory, and on disk, by prefix of their tasks; the most first."""
        return byte_seconds(self.metered)

    @property
    def breakdown(self) -> Breakdown:
        """Thread time of the whole cluster by bucket."""
        return self.facts.whole

    @property
    def causes(self) -> dict[str, float]:
        """Thread-seconds of the cluster by cause; names of :func:`~dask_efficiency.accounts.buckets.cause_name`."""
        whole = {name: sum(row.get(name, 0) for row in self.causes_by_worker.values()) for name in CAUSE_NAMES}
        return {name: ns / 1e9 for name, ns in whole.items() if ns}

    def causes_ns(self, bucket: Bucket) -> dict[str, int]:
        """Nanoseconds of one bucket by bare cause, the largest first; they add up to it, or are empty.

        Time of workers that were not sampled is ``unknown``.
        """
        rows = self.causes_by_worker.values()
        found = {cause: sum(row.get(cause_name(bucket, cause), 0) for row in rows) for cause in CAUSES.get(bucket, ())}
        return dict(sorted(((cause, ns) for cause, ns in found.items() if ns), key=lambda item: -item[1]))

    def causes_of(self, bucket: Bucket) -> dict[str, float]:
        """Thread-seconds of one bucket by bare cause, the largest first; they add up to it, or are empty."""
        return {cause: ns / 1e9 for cause, ns in self.causes_ns(bucket).items()}

    @property
    def waiting(self) -> dict[str, float]:
        """Thread-seconds of ``thread-noncpu`` by cause, the largest first; empty without samples."""
        return self.causes_of(Bucket.THREAD_NONCPU)

    @property
    def idle_causes(self) -> dict[str, float]:
        """Thread-seconds of ``idle`` by cause, the largest first; empty if unknown."""
        return self.causes_of(Bucket.IDLE)

    def _of_cluster(self, context: str) -> dict[str, float]:
        rows = self.facts.labelled.take(self.facts.labelled.named("bucket", {context}))
        return {label: ns / 1e9 for (label,), ns in rows.sums("label").items()}
