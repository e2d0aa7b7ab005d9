"""Thread and GPU time of a cluster between two instants, the causes of lost time, and the findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from dask_efficiency.accounts.buckets import CAUSES, UNKNOWN, Breakdown, Bucket, causes_of
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.memory_timeline import ClusterMemory, MemoryNow
from dask_efficiency.accounts.facts import Facts
from dask_efficiency.accounts.metered import BYTES, READ_UNCOMPRESSED, SPILLED_UNCOMPRESSED, WAYS
from dask_efficiency.accounts.rows import OTHER, growth
from dask_efficiency.accounts.stalls import StalledWork
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.live.times import GpuTimes, PrefixTimes, Rows, WorkerTimes, prefix_times
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stalls import findings_of
from dask_efficiency.show.figures import (
    format_bytes,
    format_count,
    format_share,
    harmless,
    in_unit_of_largest,
    name_of,
    shorten,
    workers_named,
)
from dask_efficiency.show.finding import MAX_SHOWN, Finding

if TYPE_CHECKING:
    from dask_efficiency.plugin.scheduler.accounts import Moment

#: Nanoseconds that live views look back. A guess: five minutes.
WINDOW_NS = 300_000_000_000


def window_of(polls: Iterable[Moment], *, width: int) -> list[Moment]:
    """Polls of the last minutes; the first is on the grid of the bins if there is one that early."""
    known = list(polls)
    start = (known[-1].at - WINDOW_NS) // width * width if known else 0
    return [poll for poll in known if poll.at >= start]


@dataclass(frozen=True, slots=True)
class Details:
    """Totals of each worker, GPU and prefix, and of data, at one instant, as of the last heartbeats."""

    at: int
    workers: WorkerTimes = field(default_factory=lambda: WorkerTimes.of(()))
    gpus: GpuTimes = field(default_factory=lambda: GpuTimes.of(()))
    #: Settled, by prefix.
    prefixes: Rows = field(default_factory=dict)
    #: Bytes and counts of data that moved since the accounts began, by ``way/unit``.
    amounts: Mapping[str, int] = field(default_factory=dict)
    memory: MemoryNow = field(default_factory=MemoryNow)


@dataclass(frozen=True)
class DetailsNow:
    """Details of a cluster now, each kind read on first use: a thousand workers take milliseconds."""

    at: int
    cluster: ClusterLedger

    @cached_property
    def workers(self) -> WorkerTimes:
        """Time of each worker since it joined."""
        return WorkerTimes.of(self.cluster.present.values())

    @cached_property
    def gpus(self) -> GpuTimes:
        """Time of each GPU since it was watched."""
        return GpuTimes.of(self.cluster.present.values())

    @cached_property
    def prefixes(self) -> Rows:
        """Settled time by prefix."""
        return self.cluster.finalized_by_prefix()

    @cached_property
    def amounts(self) -> Mapping[str, int]:
        """Data that moved."""
        return self.cluster.extra("amounts")

    @cached_property
    def memory(self) -> MemoryNow:
        """Memory of the workers."""
        return ClusterMemory.of(self.cluster.present.values()).now

    def read(self) -> Details:
        """All of them, to keep."""
        return Details(self.at, self.workers, self.gpus, self.prefixes, self.amounts, self.memory)


class ActivityTotals(Protocol):
    """Thread time of a whole cluster since its accounts began."""

    @property
    def activity(self) -> Mapping[str, int]:
        """Nanoseconds by activity."""

    @property
    def causes(self) -> Mapping[str, int]:
        """Nanoseconds by cause, as far as causes are known."""


def facts_between(then: ActivityTotals, now: ActivityTotals) -> Facts:
    """Thread time of a cluster between two instants, as that of one worker."""
    did, causes = growth(now.activity, then.activity), growth(now.causes, then.causes)
    return Facts.of_views({ALL_WORKERS: did}, causes={ALL_WORKERS: causes})


@dataclass(frozen=True)
class LastSeconds:
    """Activity of a cluster between two instants; each part is computed on first use."""

    seconds: float
    nthreads: int
    #: Thread time by activity and cause, from heartbeats.
    facts: Facts
    #: Details at the start and the end. On a dashboard the start is up to a minute before or after that of the facts.
    then: Details
    now: Details | DetailsNow
    not_measured: Mapping[str, str] = field(default_factory=dict)
    not_sampled: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: ClusterLedger, polls: Sequence[Moment], *, then: Details) -> LastSeconds:
        """Activity from the first poll to the last of a cluster whose accounts are current."""
        first, last = polls[0], polls[-1]
        return cls(
            seconds=(last.at - first.at) / 1e9,
            nthreads=last.nthreads,
            facts=facts_between(first, last),
            then=then,
            now=DetailsNow(last.at, cluster),
            not_measured=cluster.not_measured,
            not_sampled=cluster.not_sampled,
        )

    @property
    def did(self) -> Breakdown:
        """Thread time by activity; empty without a heartbeat."""
        return self.facts.whole

    @property
    def causes(self) -> Mapping[str, int]:
        """Nanoseconds by :data:`~dask_efficiency.accounts.buckets.CAUSE_NAMES`; those of a bucket add up to it."""
        return self.facts.causes_by_worker.get(ALL_WORKERS, {})

    @cached_property
    def report(self) -> EfficiencyReport:
        """Report of the thread time with work, by activity and not by outcome."""
        whole = self.did.total_ns
        with_work = self.seconds * (1 - self.did.ns(Bucket.NO_WORK) / whole) if whole else 0.0
        return EfficiencyReport(
            name=f"last {self.seconds:.1f} s",
            started=0.0,
            window_seconds=with_work,
            cluster_seconds=with_work,
            facts=self.facts,
            not_measured=self.not_measured,
            not_sampled=self.not_sampled,
        )

    @property
    def threads(self) -> dict[str, float]:
        """Mean number of threads by activity; adds up to ``nthreads``. Empty without heartbeats."""
        return mean_threads(self.did, self.nthreads)

    @property
    def threads_by_cause(self) -> dict[str, float]:
        """Mean number of threads by cause."""
        whole = self.did.total_ns
        return {name: self.nthreads * ns / whole for name, ns in self.causes.items()}

    @cached_property
    def cause_shares(self) -> dict[Bucket, tuple[CauseShare, ...]]:
        """Causes of lost time by bucket, if any is known; the largest first, ``unknown`` last."""
        with_work = self.did.total_ns - self.did.ns(Bucket.NO_WORK)
        found = {}
        for bucket in CAUSES:
            row = causes_of(self.causes, bucket)
            ranked = sorted(row, key=lambda cause: (cause == UNKNOWN, -row[cause]))
            if row.keys() - {UNKNOWN}:
                found[bucket] = tuple(CauseShare(bucket, cause, row[cause] / with_work) for cause in ranked)
        return found

    @cached_property
    def workers(self) -> WorkerTimes:
        """Time of each worker."""
        return self.now.workers.since(self.then.workers)

    @cached_property
    def gpus(self) -> GpuTimes:
        """Time of each GPU."""
        return self.now.gpus.since(self.then.gpus)

    @cached_property
    def prefixes(self) -> PrefixTimes:
        """Time of the prefixes' tasks."""
        return prefix_times(self.then.prefixes, self.now.prefixes)

    @property
    def moved_in_all(self) -> dict[str, int]:
        """Bytes of data that moved since the accounts began, by way."""
        return {way: n for way in WAYS if (n := self.now.amounts.get(f"{way}/{BYTES}", 0))}

    @property
    def moved(self) -> dict[str, int]:
        """Bytes of data that moved between the instants, by the ways of :attr:`moved_in_all`."""
        return {way: n - self.then.amounts.get(f"{way}/{BYTES}", 0) for way, n in self.moved_in_all.items()}


def mean_threads(did: Breakdown, nthreads: int) -> dict[str, float]:
    """Mean number of threads by bucket."""
    whole = did.total_ns
    return {bucket: nthreads * did.ns(bucket) / whole for bucket in did}


def moved_text(last: LastSeconds) -> str:
    """Data that moved, in a line: ``"Data moved (in all): made 1.2 MiB (5.0 MiB), sent 0 B (17 B)"``; may be empty."""
    # The line is long without what is in it already, compressed.
    ways = [way for way in last.moved if way not in (SPILLED_UNCOMPRESSED, READ_UNCOMPRESSED)]
    now, in_all = ({way: moved[way] for way in ways} for moved in (last.moved, last.moved_in_all))
    earlier = {way: f" ({format_bytes(n)})" for way, n in in_all.items()} if now != in_all else {}
    row = ", ".join(f"{way} {format_bytes(n)}{earlier.get(way, '')}" for way, n in now.items())
    return f"Data moved{' (in all)' if earlier else ''}: {row}" if row else ""


def memory_text(now: MemoryNow) -> str:
    """Memory in a line: ``"Memory 9.3 of 64.0 GiB: managed 8.1 (merge 5.0), unmanaged 1.2"``; empty if unknown."""
    if not now.process:
        return ""
    named = list(now.prefixes.items())
    sizes = [now.limit, now.process, now.managed, abs(now.process - now.managed), now.spilled, *(n for _, n in named)]
    (limit, process, managed, unmanaged, spilled, *parts), unit = _in_one_unit(sizes)
    of_limit = f" of {limit}" if now.limit else ""
    largest = ", ".join(f"{name_of(prefix)} {part}" for (prefix, _), part in zip(named, parts, strict=True))
    shown = f"managed {managed}{f' ({largest})' if largest else ''}, "
    shown += f"unmanaged {'-' if now.managed > now.process else ''}{unmanaged}"
    shown += f", spilled {spilled}" if now.spilled else ""
    text = f"Memory {process}{of_limit} {unit}: {shown}"
    if now.fullest and now.fullest_limit:
        (limit, process), unit = _in_one_unit([now.fullest_limit, now.fullest_process])
        text += f". Fullest: {workers_named([now.fullest])}, {process} of {limit} {unit}"
    return text


def _in_one_unit(sizes: Sequence[int]) -> tuple[list[str], str]:
    """Sizes in the unit of the largest, and that unit; what is nothing in it has its own."""
    figures, unit = in_unit_of_largest(sizes)
    return [format_bytes(size) if text == "0.0" else text for size, text in zip(sizes, figures, strict=True)], unit


# -- causes ----------------------------------------------------------------------------------------


#: Share from which a cause is listed. A guess.
MIN_LISTED_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class CauseShare:
    """A cause and its share of the thread time with work, in [0, 1]."""

    bucket: Bucket
    cause: str
    share: float


def causes_text(row: tuple[CauseShare, ...]) -> str:
    """Causes and their shares in a line: ``"gil 30 %, core 5 %"``; empty if all are small."""
    return ", ".join(f"{one.cause} {format_share(one.share)}" for one in row if one.share >= MIN_LISTED_SHARE)


def not_sampled_text(workers: Mapping[str, str]) -> str:
    """Number of workers that are not sampled, and why; empty if all are."""
    if not workers:
        return ""
    reasons = set(workers.values())
    why = f": {shorten(harmless(reasons.pop()), 80)}" if len(reasons) == 1 else ""
    return f"Threads of {format_count(len(workers), 'worker')} are not sampled{why}"


# -- findings --------------------------------------------------------------------------------------


def running_findings(last: LastSeconds, stalls: Iterable[StalledWork]) -> tuple[Finding, ...]:
    """First findings of what is running: what stands still, and then what costs most, as far as its saving is known."""
    found = last.report.findings if last.did else ()
    return (*findings_of(stalls), *(one for one in found if one.saves_seconds is not None))[:MAX_SHOWN]


def last_findings(cluster: ClusterLedger, polls: Iterable[Moment]) -> list[tuple[Finding, str]]:
    """Findings of the last minutes with a known saving, each with the prefix of its tasks.

    The prefix is empty unless one prefix has more than half of the lost time. By prefix only the time of a bucket is
    known, so for one cause of it the prefix must have all of the bucket but half of the cause.
    """
    window = window_of(polls, width=1)
    if len(window) < 2:
        return []
    last = LastSeconds.of(cluster, window, then=Details(window[0].at))
    then = next((poll.prefixes for poll in window if poll.prefixes is not None), None)
    now = {} if then is None else cluster.finalized_by_prefix()
    found = []
    for one in last.report.findings:
        bucket, prefix = one.kind.partition("/")[0], ""
        if bucket in TASK_BUCKETS:
            rest = 1 - one.lost_seconds / last.did[bucket] / 2
            prefix = _dominant_prefix(then or {}, now, bucket, more_than=rest)
        if one.saves_seconds is not None:
            found.append((one, prefix))
    return found


def _dominant_prefix(then: Rows, now: Rows, bucket: str, *, more_than: float) -> str:
    """Prefix with more than a share of a bucket's gain; empty if there is none."""
    at, nothing = TASK_BUCKETS.index(bucket), (0,) * len(TASK_BUCKETS)
    gained = {prefix: row[at] - then.get(prefix, nothing)[at] for prefix, row in now.items()}
    most = max(gained, key=gained.__getitem__, default=OTHER)
    return most if most != OTHER and gained[most] > more_than * sum(gained.values()) else ""
