"""What `dask-efficiency top` shows: two observations of a scheduler, and the view that they make."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.accounts.causes import fit_known
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.live.last_seconds import Details, LastSeconds, causes_since, done_since, mean_threads
from dask_efficiency.live.times import Gpu, GpuCounters, WorkerCounters
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.findings import in_a_line
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.names import natural

#: Two observations that are compared are at least this many new heartbeats apart: between two, a worker has said
#: nothing.
HEARTBEATS = 2


@dataclass(frozen=True, slots=True)
class WorkerObservation:
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
class Observation:
    """A cluster's accounts at one instant, as far as heartbeats had come."""

    #: Which accounts these are: others begin when the plugin is unregistered and registered anew.
    session: str
    #: By the scheduler's monotonic clock, in nanoseconds.
    at: int
    #: When the accounts began, by that clock.
    started: int
    #: Nanoseconds with work outstanding since they began.
    outstanding: int
    #: Seconds between a worker's heartbeats that are read and tell anything new.
    heartbeat_seconds: float
    nthreads: int
    workers: Mapping[str, WorkerObservation]
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
    #: The same by :data:`~dask_efficiency.accounts.causes.NAMES`, as far as causes are known; monotone.
    causes: Mapping[str, int] = field(default_factory=dict)
    #: Parts of ``buckets``, likewise.
    bucket_causes: Mapping[str, int] = field(default_factory=dict)
    #: Worker name to the reason why nobody looks what its threads wait for.
    not_sampled: Mapping[str, str] = field(default_factory=dict)

    @property
    def details(self) -> Details:
        """The workers in the order of their names, and the GPUs."""
        names = sorted(self.workers, key=natural)
        activity = [[self.workers[name].activity.get(a, 0) for a in ACTIVITIES] for name in names]
        gpus = [[row.get(a, 0) for a in GPU_ACTIVITIES] for row in self.gpus.values()]
        return Details(
            self.at,
            WorkerCounters(
                tuple(names),
                tuple(names),
                tuple(self.workers[name].nthreads for name in names),
                np.array(activity, dtype=np.int64).reshape(-1, len(ACTIVITIES)),
            ),
            GpuCounters(
                tuple(self.gpus),
                tuple(Gpu("", "", key) for key in self.gpus),
                np.array(gpus, dtype=np.int64).reshape(-1, len(GPU_ACTIVITIES)),
            ),
        )


def read(payload: Mapping[str, Any]) -> Observation:
    """A scheduler's answer as an observation.

    Raises
    ------
    ValueError
        If it is not one, as that of another version of the package may be.
    """
    try:
        workers = {name: WorkerObservation(**worker) for name, worker in payload["workers"].items()}
        return Observation(**{**payload, "workers": workers})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the scheduler has another version of dask-efficiency: {error}") from error


def baseline(observations: Iterable[Observation], now: Observation, *, seconds: float) -> Observation | None:
    """The observation to compare with: of the same accounts, at least ``seconds`` and some heartbeats old.

    Parameters
    ----------
    observations
        Oldest first.
    now
        What is compared.
    seconds
        How long ago at least.

    Returns
    -------
    Observation or None
        The youngest that is old enough, else the oldest; None if there is none of these accounts.
    """
    same = [one for one in observations if one.session == now.session and one.at < now.at]
    age = 1e9 * max(seconds, HEARTBEATS * now.heartbeat_seconds)
    old = [one for one in same if now.at - one.at >= age]
    return old[-1] if old else next(iter(same), None)


@dataclass(frozen=True, slots=True)
class TopView:
    """What a cluster did between two observations, and how it stands."""

    #: Where the scheduler is.
    source: str
    last: LastSeconds
    #: How each worker stands, in the order of those in ``last``.
    workers: tuple[WorkerObservation, ...]
    #: Workers that are there beyond these.
    more_workers: int
    #: Tasks that ended in between, by outcome.
    tasks: Mapping[str, int]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    #: The accounts since they began.
    life: EfficiencyReport

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; a number that is not finite is None."""
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
            },
        }


def top_view(then: Observation | None, now: Observation, *, source: str) -> TopView:
    """What happened between two observations of the same accounts; since these began if ``then`` is None."""
    before: Mapping[str, WorkerObservation] = now.workers if then is None else then.workers
    # Where not all workers are named, one that is named no more may still be there.
    all_named = now.more_workers == (0 if then is None else then.more_workers) == 0
    ended = {outcome: n - (0 if then is None else then.tasks.get(outcome, 0)) for outcome, n in now.tasks.items()}
    did = done_since({} if then is None else then.activity, now.activity)
    last = LastSeconds(
        seconds=(now.at - (now.started if then is None else then.at)) / 1e9,
        nthreads=now.nthreads,
        did=did,
        then=None if then is None else then.details,
        now=now.details,
        causes=causes_since({} if then is None else then.causes, now.causes, did),
        not_sampled=now.not_sampled,
    )
    return TopView(
        source=source,
        last=last,
        workers=tuple(now.workers[name] for name in last.workers.names),
        more_workers=now.more_workers,
        tasks={outcome: n for outcome, n in ended.items() if n > 0},
        joined=tuple(sorted(now.workers.keys() - before.keys(), key=natural)) if all_named else (),
        left=tuple(sorted(before.keys() - now.workers.keys(), key=natural)) if all_named else (),
        life=_life(now),
    )


def _life(now: Observation) -> EfficiencyReport:
    causes = fit_known(now.bucket_causes, now.buckets)
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
