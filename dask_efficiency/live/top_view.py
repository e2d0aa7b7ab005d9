"""Observations of a scheduler, and the view that `dask-efficiency top` makes of two of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dask_efficiency.accounts.buckets import Breakdown, fit_known_causes
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.accounts.rows import growth
from dask_efficiency.live.last_seconds import Details, LastSeconds, mean_threads
from dask_efficiency.live.times import Gpu, GpuTimes, WorkerTimes
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.findings import in_a_line
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.figures import natural

#: Heartbeats between two compared observations at least: between two heartbeats a worker reports nothing.
HEARTBEATS = 2


@dataclass(frozen=True, slots=True)
class WorkerObservation:
    """A worker as its scheduler knows it."""

    nthreads: int
    #: Nanoseconds by activity since the accounts began; monotone.
    activity: Mapping[str, int]
    #: Thread-nanoseconds held so far by tasks that have not ended.
    running: int
    #: Tasks assigned and not finished.
    tasks: int
    status: str


@dataclass(frozen=True, slots=True)
class Observation:
    """Accounts of a cluster at one instant, as of the last heartbeats."""

    #: Identity of the accounts; new when the plugin is registered anew.
    session: str
    #: By the scheduler's monotonic clock, in nanoseconds.
    at: int
    #: Start of the accounts, by that clock.
    started: int
    #: Nanoseconds with work outstanding since then.
    outstanding: int
    #: Seconds between two heartbeats of a worker that are read.
    heartbeat_seconds: float
    nthreads: int
    workers: Mapping[str, WorkerObservation]
    more_workers: int
    #: Nanoseconds by activity of the whole cluster; monotone.
    activity: Mapping[str, int]
    #: Nanoseconds by bucket since the accounts began, including ``running``.
    buckets: Mapping[str, int]
    tasks: Mapping[str, int]
    #: By GPU that one worker uses alone, nanoseconds in kernels, copies and idle since it was watched.
    gpus: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: Nanoseconds with work outstanding and without any worker.
    no_workers: int = 0
    #: Parts of ``activity`` by :data:`~dask_efficiency.accounts.buckets.CAUSE_NAMES`, for known causes; monotone.
    causes: Mapping[str, int] = field(default_factory=dict)
    #: Parts of ``buckets`` by cause.
    bucket_causes: Mapping[str, int] = field(default_factory=dict)
    not_sampled: Mapping[str, str] = field(default_factory=dict)
    #: Bytes and counts of data that moved since the accounts began, by ``way/unit``.
    amounts: Mapping[str, int] = field(default_factory=dict)

    @property
    def details(self) -> Details:
        """Workers in the order of their names, and GPUs."""
        names = sorted(self.workers, key=natural)
        activity = [[self.workers[name].activity.get(a, 0) for a in ACTIVITIES] for name in names]
        gpus = [[row.get(a, 0) for a in GPU_ACTIVITIES] for row in self.gpus.values()]
        return Details(
            self.at,
            WorkerTimes(
                tuple(names),
                tuple(names),
                tuple(self.workers[name].nthreads for name in names),
                np.array(activity, dtype=np.int64).reshape(-1, len(ACTIVITIES)),
            ),
            GpuTimes(
                tuple(self.gpus),
                tuple(Gpu("", "", key) for key in self.gpus),
                np.array(gpus, dtype=np.int64).reshape(-1, len(GPU_ACTIVITIES)),
            ),
            amounts=self.amounts,
        )


def read(payload: Mapping[str, Any]) -> Observation:
    """Observation from a scheduler's reply; raises ValueError if it is something else, as of another version."""
    try:
        workers = {name: WorkerObservation(**worker) for name, worker in payload["workers"].items()}
        return Observation(**{**payload, "workers": workers})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the scheduler has another version of dask-efficiency: {error}") from error


def baseline(observations: Iterable[Observation], now: Observation, *, seconds: float) -> Observation | None:
    """Youngest observation of the same accounts that is ``seconds`` and some heartbeats old, else the oldest."""
    same = [one for one in observations if one.session == now.session and one.at < now.at]
    age = 1e9 * max(seconds, HEARTBEATS * now.heartbeat_seconds)
    old = [one for one in same if now.at - one.at >= age]
    return old[-1] if old else next(iter(same), None)


# -- the view --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopView:
    """Activity of a cluster between two observations, and its current state."""

    source: str
    last: LastSeconds
    workers: tuple[WorkerObservation, ...]
    more_workers: int
    tasks: Mapping[str, int]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    life: EfficiencyReport

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite are None."""
        last, life = self.last, self.life
        gpus = last.gpus
        return {
            "scheduler": self.source,
            "seconds": last.seconds,
            "nthreads": last.nthreads,
            "headline": in_a_line(last.report),
            "efficiency": _finite(last.report.efficiency),
            "threads": last.threads,
            "threads_by_cause": last.threads_by_cause,
            "tasks": dict(self.tasks),
            "moved_bytes": last.moved,
            "joined": list(self.joined),
            "left": list(self.left),
            "workers": {
                name: {
                    "nthreads": worker.nthreads,
                    "threads": mean_threads(last.workers.did(i), worker.nthreads),
                    "running_seconds": worker.running / 1e9,
                    "tasks": worker.tasks,
                    "status": worker.status,
                }
                for i, (name, worker) in enumerate(zip(last.workers.names, self.workers, strict=True))
            },
            "more_workers": self.more_workers,
            "gpus": {"number": len(gpus.gpus), "shares": gpus.shares_of_all} if gpus.gpus else None,
            "life": {
                "seconds": life.window_seconds,
                "headline": in_a_line(life),
                "efficiency": _finite(life.efficiency),
                "thread_seconds": dict(life.breakdown),
                "moved_bytes": last.moved_in_all,
            },
        }


def top_view(then: Observation | None, now: Observation, *, source: str) -> TopView:
    """View of the time between two observations of the same accounts; since they began if ``then`` is None."""
    start = then or replace(now, at=now.started, activity={}, causes={}, tasks={}, more_workers=0)
    # If not all workers are named, a worker that is no longer named may still be present.
    all_named = now.more_workers == start.more_workers == 0
    did = Breakdown(growth(now.activity, start.activity))
    last = LastSeconds(
        seconds=(now.at - start.at) / 1e9,
        nthreads=now.nthreads,
        did=did,
        then=None if then is None else then.details,
        now=now.details,
        causes=fit_known_causes(growth(now.causes, start.causes), did.to_nanoseconds()),
        not_sampled=now.not_sampled,
    )
    return TopView(
        source=source,
        last=last,
        workers=tuple(now.workers[name] for name in last.workers.names),
        more_workers=now.more_workers,
        tasks=growth(now.tasks, start.tasks),
        joined=tuple(sorted(now.workers.keys() - start.workers.keys(), key=natural)) if all_named else (),
        left=tuple(sorted(start.workers.keys() - now.workers.keys(), key=natural)) if all_named else (),
        life=_life(now),
    )


def _life(now: Observation) -> EfficiencyReport:
    causes = fit_known_causes(now.bucket_causes, now.buckets)
    return EfficiencyReport(
        name="life",
        started=0.0,
        window_seconds=(now.at - now.started) / 1e9,
        cluster_seconds=max(0, now.outstanding - now.no_workers) / 1e9,
        no_workers_seconds=now.no_workers / 1e9,
        by_worker={ALL_WORKERS: Breakdown(now.buckets)},
        causes_by_worker={ALL_WORKERS: causes} if causes else {},
        not_sampled=now.not_sampled,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
