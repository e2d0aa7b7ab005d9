"""LastSeconds: what the threads and GPUs of a cluster did between two instants, in all and one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dask_efficiency.accounts.buckets import Breakdown, Bucket
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.live.bins import ThreadTotals
from dask_efficiency.live.causes import CauseShare, cause_shares, causes_since, largest_cause
from dask_efficiency.live.gpus import GpuCounters, GpuTimes
from dask_efficiency.live.prefixes import PrefixTimes, prefix_times
from dask_efficiency.live.workers import WorkerCounters, WorkerTimes
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.model import EfficiencyReport


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
