"""What a cluster did between two readings of its scheduler's accounts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_efficiency.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.report.figures import natural
from dask_efficiency.report.model import ALL_WORKERS, ReportValues
from dask_efficiency.report.verdict import verdict

#: Readings are compared over this many heartbeats at least: between two, a worker has said nothing.
HEARTBEATS = 2


@dataclass(frozen=True, slots=True)
class WorkerReading:
    """One worker as its scheduler knows it."""

    nthreads: int
    #: Nanoseconds by activity since the accounts began; monotone.
    activity: Mapping[str, int]
    #: Thread-nanoseconds held so far by tasks that have not ended.
    running: int
    #: Tasks that it has been given and not finished.
    tasks: int
    status: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A cluster's accounts at one instant, as far as heartbeats had come."""

    #: Which accounts these are: others begin when the plugin is unregistered and registered anew.
    session: str
    #: By the scheduler's monotonic clock, in nanoseconds.
    at: int
    #: When the accounts began, by that clock.
    started: int
    #: Nanoseconds with work outstanding since they began.
    outstanding: int
    #: Seconds between a worker's heartbeats.
    heartbeat_seconds: float
    nthreads: int
    workers: Mapping[str, WorkerReading]
    #: Workers that are there beyond those in ``workers``.
    more_workers: int
    #: Nanoseconds by activity of the whole cluster; monotone.
    activity: Mapping[str, int]
    #: Nanoseconds by bucket since the accounts began, ``running`` included.
    buckets: Mapping[str, int]
    #: Tasks that ended, by outcome.
    tasks: Mapping[str, int]
    #: By GPU that one worker uses alone, nanoseconds in kernels, copies and idle since it was watched.
    gpus: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: Nanoseconds with work outstanding and without any worker.
    no_workers: int = 0


def read(payload: Mapping[str, Any]) -> Reading:
    """A scheduler's answer as a reading.

    Raises
    ------
    ValueError
        If it is not one, as that of another version of the package may be.
    """
    try:
        workers = {name: WorkerReading(**worker) for name, worker in payload["workers"].items()}
        return Reading(**{**payload, "workers": workers})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the scheduler has another version of dask-efficiency: {error}") from error


def baseline(readings: Iterable[Reading], now: Reading, *, seconds: float) -> Reading | None:
    """The reading to compare with: of the same accounts, at least ``seconds`` and some heartbeats old.

    Parameters
    ----------
    readings
        Oldest first.
    now
        What is compared.
    seconds
        How long ago at least.

    Returns
    -------
    Reading or None
        The youngest that is old enough, else the oldest; None if there is none of these accounts.
    """
    same = [reading for reading in readings if reading.session == now.session and reading.at < now.at]
    age = 1e9 * max(seconds, HEARTBEATS * now.heartbeat_seconds)
    old = [reading for reading in same if now.at - reading.at >= age]
    return old[-1] if old else next(iter(same), None)


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """What one worker's threads did between two readings."""

    name: str
    nthreads: int
    #: Empty where no heartbeat of it came in between.
    did: Breakdown
    running_seconds: float
    tasks: int
    status: str

    @property
    def useful_share(self) -> float:
        """Share on the CPU or GPU of its time while there was work, in [0, 1]; NaN without such time."""
        with_work = self.did.total_ns - self.did.ns(Bucket.NO_WORK)
        return self.did.ns(*GOOD) / with_work if with_work else math.nan

    @property
    def largest_loss(self) -> Bucket | None:
        """Where most of the rest went; None where all of it was useful."""
        lost = {Bucket(bucket): self.did.ns(bucket) for bucket in self.did if bucket not in (*GOOD, Bucket.NO_WORK)}
        return max(lost, key=lambda bucket: lost[bucket]) if lost else None


@dataclass(frozen=True, slots=True)
class Change:
    """What a cluster did between two readings, and how it stands."""

    #: Where the scheduler is.
    source: str
    #: Wall seconds between the readings.
    seconds: float
    nthreads: int
    #: Thread time by activity that heartbeats told of in between.
    did: Breakdown
    #: By name, numbers in names in their order.
    workers: tuple[WorkerChange, ...]
    more_workers: int
    #: Tasks that ended in between, by outcome.
    tasks: Mapping[str, int]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    #: The accounts since they began.
    life: ReportValues
    #: Nanoseconds of all GPUs in kernels, copies and idle that heartbeats told of in between.
    gpu: Mapping[str, int] = field(default_factory=dict)
    #: How many they are.
    gpus: int = 0

    @property
    def threads(self) -> dict[str, float]:
        """How many threads did what, on the average; the sum is ``nthreads``. Empty without heartbeats."""
        whole = self.did.total_ns
        return {bucket: self.nthreads * self.did.ns(bucket) / whole for bucket in self.did}

    @property
    def gpu_shares(self) -> dict[str, float]:
        """Shares of the GPUs' time in kernels, copies and idle, each in [0, 1]; empty without any."""
        whole = sum(self.gpu.values())
        return {name: ns / whole for name, ns in self.gpu.items()} if whole else {}

    @property
    def report(self) -> ReportValues:
        """The time between the readings as a report: of what threads did, whatever became of the tasks."""
        return ReportValues(
            name=f"last {self.seconds:.1f} s",
            started=0.0,
            window_seconds=self.seconds,
            cluster_seconds=0.0,
            by_worker={ALL_WORKERS: self.did},
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; a number that is not finite is None."""
        report = self.report
        return {
            "scheduler": self.source,
            "seconds": self.seconds,
            "nthreads": self.nthreads,
            "verdict": verdict(report),
            "efficiency": _finite(report.efficiency),
            "threads": self.threads,
            "tasks": dict(self.tasks),
            "joined": list(self.joined),
            "left": list(self.left),
            "workers": {worker.name: _plain(worker) for worker in self.workers},
            "more_workers": self.more_workers,
            "gpus": {"number": self.gpus, "shares": self.gpu_shares} if self.gpus else None,
            "life": {
                "seconds": self.life.window_seconds,
                "verdict": verdict(self.life),
                "efficiency": _finite(self.life.efficiency),
                "thread_seconds": dict(self.life.breakdown),
            },
        }


def change(then: Reading | None, now: Reading, *, source: str) -> Change:
    """What happened between two readings of the same accounts; since they began if ``then`` is None."""
    before: Mapping[str, WorkerReading] = then.workers if then is not None else now.workers
    workers = [
        WorkerChange(
            name=name,
            nthreads=worker.nthreads,
            did=_gained(worker.activity, _activity(then, name)),
            running_seconds=worker.running / 1e9,
            tasks=worker.tasks,
            status=worker.status,
        )
        for name, worker in now.workers.items()
    ]
    tasks = {outcome: n - (then.tasks.get(outcome, 0) if then else 0) for outcome, n in now.tasks.items()}
    whole = now.more_workers == (then.more_workers if then else 0) == 0
    return Change(
        source=source,
        seconds=(now.at - (then.at if then else now.started)) / 1e9,
        nthreads=now.nthreads,
        did=_gained(now.activity, then.activity if then else {}),
        workers=tuple(sorted(workers, key=lambda worker: natural(worker.name))),
        more_workers=now.more_workers,
        tasks={outcome: n for outcome, n in tasks.items() if n > 0},
        joined=tuple(sorted(now.workers.keys() - before.keys(), key=natural)) if whole else (),
        left=tuple(sorted(before.keys() - now.workers.keys(), key=natural)) if whole else (),
        life=ReportValues(
            name="life",
            started=0.0,
            window_seconds=(now.at - now.started) / 1e9,
            cluster_seconds=max(0, now.outstanding - now.no_workers) / 1e9,
            no_workers_seconds=now.no_workers / 1e9,
            by_worker={ALL_WORKERS: Breakdown(now.buckets)},
        ),
        gpu=_gpus_did(now.gpus, then.gpus if then else {}),
        gpus=len(now.gpus),
    )


def _gpus_did(now: Mapping[str, Mapping[str, int]], then: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    did: Counter[str] = Counter()
    for gpu, row in now.items():
        before = then.get(gpu, {})
        did.update({activity: max(0, ns - before.get(activity, 0)) for activity, ns in row.items()})
    return dict(did)


def _activity(reading: Reading | None, name: str) -> Mapping[str, int]:
    worker = reading.workers.get(name) if reading is not None else None
    return worker.activity if worker is not None else {}


def _gained(now: Mapping[str, int], then: Mapping[str, int]) -> Breakdown:
    return Breakdown({bucket: max(0, ns - then.get(bucket, 0)) for bucket, ns in now.items()})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain(worker: WorkerChange) -> dict[str, Any]:
    whole = worker.did.total_ns
    return {
        "nthreads": worker.nthreads,
        "threads": {bucket: worker.nthreads * worker.did.ns(bucket) / whole for bucket in worker.did},
        "running_seconds": worker.running_seconds,
        "tasks": worker.tasks,
        "status": worker.status,
    }
