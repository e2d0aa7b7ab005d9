"""What the threads and GPUs of a cluster did between two instants, why threads lost time, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.accounts.causes import CAUSES, UNKNOWN, fit_known, of_bucket
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.worker.balance import OTHER, TASK_BUCKETS
from dask_efficiency.live.times import GpuCounters, GpuTimes, PrefixTimes, WorkerCounters, WorkerTimes, prefix_times
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.findings import find
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.figures import format_share, harmless, shorten
from dask_efficiency.show.finding import Finding

#: A live view looks back this far.
WINDOW_NS = 300_000_000_000


class ThreadTotals(Protocol):
    """What all threads of a cluster together had done by one instant."""

    @property
    def at(self) -> int:
        """Monotonic nanoseconds."""

    @property
    def activity(self) -> Mapping[str, int]:
        """Nanoseconds by :data:`~dask_efficiency.accounts.cluster.presence.ACTIVITIES` since the accounts began."""

    @property
    def nthreads(self) -> int:
        """Threads that were there."""

    @property
    def causes(self) -> Mapping[str, int]:
        """The nanoseconds by :data:`~dask_efficiency.accounts.causes.NAMES`, as far as causes are known."""

    @property
    def prefixes(self) -> Mapping[str, Sequence[int]] | None:
        """What tasks of each prefix had settled by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`."""


def window_of(polls: Iterable[ThreadTotals], *, width: int) -> list[ThreadTotals]:
    """The polls of the last minutes; the first stands on the grid of the bins if there is one that early."""
    known = list(polls)
    if not known:
        return []
    start = (known[-1].at - WINDOW_NS) // width * width
    return [poll for poll in known if poll.at >= start]


@dataclass(frozen=True, slots=True)
class Details:
    """What each worker, GPU and prefix of a cluster had done by one instant, as far as heartbeats had come."""

    #: Monotonic nanoseconds.
    at: int
    workers: WorkerCounters
    gpus: GpuCounters
    #: Settled nanoseconds by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`.
    prefixes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: ClusterLedger, *, at: int) -> Details:
        """The details of a cluster as of now."""
        now = DetailsNow(at, cluster)
        return cls(at, now.workers, now.gpus, now.prefixes)


@dataclass(frozen=True)
class DetailsNow:
    """The details of a cluster as of now, each kind read when it is first asked for, which is to be soon.

    Reading a thousand workers takes milliseconds, and most pages of a dashboard show one kind or none.
    """

    at: int
    cluster: ClusterLedger

    @cached_property
    def workers(self) -> WorkerCounters:
        """What each worker had done."""
        return WorkerCounters.of(self.cluster.present.values())

    @cached_property
    def gpus(self) -> GpuCounters:
        """What each GPU had done."""
        return GpuCounters.of(self.cluster.present.values())

    @cached_property
    def prefixes(self) -> Mapping[str, Sequence[int]]:
        """Settled nanoseconds by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`."""
        return self.cluster.finalized_by_prefix()


@dataclass(frozen=True)
class LastSeconds:
    """What a cluster did between two instants. Each part is computed once, when it is first asked for."""

    #: Wall seconds in which the threads did this.
    seconds: float
    #: Threads that are there now.
    nthreads: int
    #: What all threads together did, as far as heartbeats reported it; empty where none came.
    did: Breakdown
    #: Where the parts begin and end. On a dashboard they begin up to a minute before or after :attr:`did`.
    then: Details | None
    now: Details | DetailsNow
    #: Worker name to the reason why its time is not measured.
    not_measured: Mapping[str, str] = field(default_factory=dict)
    #: Parts of :attr:`did` by :data:`~dask_efficiency.accounts.causes.NAMES`: those of a bucket add up to it, or are
    #: none.
    causes: Mapping[str, int] = field(default_factory=dict)
    #: Worker name to the reason why nobody looks what its threads wait for.
    not_sampled: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: ClusterLedger, polls: Sequence[ThreadTotals], *, then: Details | None) -> LastSeconds:
        """What a cluster, whose accounts are as of now, did from the first poll to the last."""
        first, last = polls[0], polls[-1]
        did = done_since(first.activity, last.activity)
        return cls(
            seconds=(last.at - first.at) / 1e9,
            nthreads=last.nthreads,
            did=did,
            then=then,
            now=DetailsNow(last.at, cluster),
            not_measured=dict(cluster.reasons),
            causes=causes_since(first.causes, last.causes, did),
            not_sampled=cluster.not_sampled,
        )

    @cached_property
    def report(self) -> EfficiencyReport:
        """The same as a report: of what threads did while there was work, whatever became of the tasks."""
        whole = self.did.total_ns
        with_work = self.seconds * (1 - self.did.ns(Bucket.NO_WORK) / whole) if whole else 0.0
        return EfficiencyReport(
            name=f"last {self.seconds:.1f} s",
            started=0.0,
            window_seconds=with_work,
            cluster_seconds=with_work,
            by_worker={ALL_WORKERS: self.did},
            not_measured=self.not_measured,
            causes_by_worker={ALL_WORKERS: self.causes} if self.causes else {},
            not_sampled=self.not_sampled,
        )

    @property
    def threads(self) -> dict[str, float]:
        """How many threads did what in the mean; they add up to ``nthreads``. Empty without heartbeats."""
        return mean_threads(self.did, self.nthreads)

    @property
    def threads_by_cause(self) -> dict[str, float]:
        """The same for each of :attr:`causes`."""
        whole = self.did.total_ns
        return {name: self.nthreads * ns / whole for name, ns in self.causes.items()}

    @cached_property
    def cause_shares(self) -> dict[Bucket, tuple[CauseShare, ...]]:
        """Why threads did nothing useful, by bucket, the largest cause of each first."""
        return cause_shares(self.did, self.causes)

    @property
    def largest_cause(self) -> CauseShare | None:
        """The known cause that took most time; None where none took enough of it."""
        return largest_cause(self.did, self.causes)

    @cached_property
    def workers(self) -> WorkerTimes:
        """What each worker did."""
        return WorkerTimes.between(None if self.then is None else self.then.workers, self.now.workers)

    @cached_property
    def gpus(self) -> GpuTimes:
        """What each GPU did."""
        return GpuTimes.between(None if self.then is None else self.then.gpus, self.now.gpus)

    @cached_property
    def prefixes(self) -> PrefixTimes:
        """Which prefixes' tasks took the time."""
        return prefix_times({} if self.then is None else self.then.prefixes, self.now.prefixes)


def mean_threads(did: Breakdown, nthreads: int) -> dict[str, float]:
    """How many of some threads did what in the mean."""
    whole = did.total_ns
    return {bucket: nthreads * did.ns(bucket) / whole for bucket in did}


def done_since(then: Mapping[str, int], now: Mapping[str, int]) -> Breakdown:
    """What threads did from one instant to a later one, from their nanoseconds by activity at both."""
    return Breakdown({activity: max(0, ns - then.get(activity, 0)) for activity, ns in now.items()})


#: A smaller share of the threads' time is noise, or no loss worth a sentence.
MIN_SHARE = 0.05

#: A smaller share has no place in a list.
MIN_LISTED_SHARE = 0.005

#: What threads do for each cause that is known.
SENTENCES: dict[Bucket, dict[str, str]] = {
    Bucket.THREAD_NONCPU: {
        "gil": "Threads wait for the GIL",
        "core": "Threads wait for a core",
        "throttled": "Threads wait for the CPU limit of their container",
        "stopped": "Processes of workers stand still",
        "lock": "Threads wait for locks",
        "sleep": "Threads sleep within tasks",
        "file": "Threads wait for files",
        "network": "Threads wait for the network",
        "child-process": "Threads wait for processes that tasks started",
    },
    Bucket.OVERHEAD: {
        "hand-over": "Tasks wait to begin in their threads",
        "event-loop": "Tasks that are done wait for their worker's event loop",
        "rescheduled": "Tasks of a shuffle begin on other workers than their data",
    },
    Bucket.IDLE: {
        "scheduler": "Threads wait for the scheduler",
        "round-trips": "Threads wait for round trips: the scheduler holds ready tasks back",
        "imbalance": "Threads are idle while tasks wait at other workers",
        "restricted": "Threads are idle while tasks may run on other workers only",
        "graph": "Threads wait while the scheduler takes in a graph",
        "parallelism": "Threads find no task that is ready",
    },
}


@dataclass(frozen=True, slots=True)
class CauseShare:
    """One cause, and its share of the thread time while there was work, in [0, 1]."""

    bucket: Bucket
    cause: str
    share: float


def causes_since(then: Mapping[str, int], now: Mapping[str, int], did: Breakdown) -> dict[str, int]:
    """Why threads did nothing useful from one instant to a later one, from their causes at both.

    Parameters
    ----------
    then, now
        Nanoseconds by :data:`~dask_efficiency.accounts.causes.NAMES`; they only grow.
    did
        What the threads did meanwhile.

    Returns
    -------
    dict
        Nanoseconds by :data:`~dask_efficiency.accounts.causes.NAMES`. Those of a bucket add up to it, or are none
        where nobody looked.
    """
    gained = {name: ns - then.get(name, 0) for name, ns in now.items()}
    return fit_known({name: ns for name, ns in gained.items() if ns > 0}, did.to_nanoseconds())


def cause_shares(did: Breakdown, causes: Mapping[str, int]) -> dict[Bucket, tuple[CauseShare, ...]]:
    """The causes of each bucket of which any is known, the largest first and what is not known last."""
    with_work = did.total_ns - did.ns(Bucket.NO_WORK)
    found = {}
    for bucket in CAUSES:
        row = of_bucket(causes, bucket)
        ranked = sorted(row, key=lambda cause: (cause == UNKNOWN, -row[cause]))
        if row.keys() - {UNKNOWN}:
            found[bucket] = tuple(CauseShare(bucket, cause, row[cause] / with_work) for cause in ranked)
    return found


def largest_cause(did: Breakdown, causes: Mapping[str, int]) -> CauseShare | None:
    """The known cause that took most time; None where none took :data:`MIN_SHARE` of it."""
    shares = [one for row in cause_shares(did, causes).values() for one in row if one.cause != UNKNOWN]
    largest = max(shares, key=lambda one: one.share, default=None)
    return largest if largest is not None and largest.share >= MIN_SHARE else None


def causes_text(row: tuple[CauseShare, ...]) -> str:
    """Causes and their shares in a line: ``"gil 30 %, core 5 %"``; empty where all are small."""
    return ", ".join(f"{one.cause} {format_share(one.share)}" for one in row if one.share >= MIN_LISTED_SHARE)


def not_sampled_text(workers: Mapping[str, str]) -> str:
    """Of how many workers nobody knows what their threads wait for, and why; empty where all are sampled."""
    if not workers:
        return ""
    reasons = set(workers.values())
    why = f": {shorten(harmless(reasons.pop()), 80)}" if len(reasons) == 1 else ""
    which = "1 worker" if len(workers) == 1 else f"{len(workers)} workers"
    return f"What threads of {which} wait for is not known{why}"


Rows = Mapping[str, Sequence[int]]


def last_findings(cluster: ClusterLedger, polls: Iterable[ThreadTotals]) -> list[tuple[Finding, str]]:
    """What fixing would save most of the last minutes, as far as that is known, each with the prefix of its tasks.

    The prefix is empty unless more than half of what was lost is in tasks of one. Of a cause only its bucket is known
    by prefix, so that takes a larger part of the bucket: all but half of the cause.
    """
    window = window_of(polls, width=1)
    if len(window) < 2:
        return []
    last = LastSeconds.of(cluster, window, then=None)
    then = next((poll.prefixes for poll in window if poll.prefixes is not None), None)
    now = {} if then is None else cluster.finalized_by_prefix()
    found = []
    for one in find(last.report):
        bucket, prefix = one.kind.partition("/")[0], ""
        if bucket in TASK_BUCKETS:
            rest = 1 - one.lost_seconds / last.did[bucket] / 2
            prefix = _dominant_prefix(then or {}, now, bucket, more_than=rest)
        if one.saves_seconds is not None:
            found.append((one, prefix))
    return found


def _dominant_prefix(then: Rows, now: Rows, bucket: str, *, more_than: float) -> str:
    """The prefix whose tasks have more than a share of what a bucket gained; empty where none has."""
    at, nothing = TASK_BUCKETS.index(bucket), (0,) * len(TASK_BUCKETS)
    gained = {prefix: row[at] - then.get(prefix, nothing)[at] for prefix, row in now.items()}
    most = max(gained, key=gained.__getitem__, default=OTHER)
    return most if most != OTHER and gained[most] > more_than * sum(gained.values()) else ""
