"""Observations of a scheduler, and the view that `dask-efficiency top` makes of two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import mapping, text, whole
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.memory_timeline import MemoryNow
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.accounts.cluster.time_left import TimeLeft, decode_left
from dask_efficiency.accounts.facts import Facts
from dask_efficiency.accounts.intake import finite
from dask_efficiency.accounts.rows import growth
from dask_efficiency.accounts.stalls import StalledWork, decode_stalls
from dask_efficiency.live.last_seconds import Details, LastSeconds, facts_between, mean_threads, running_findings
from dask_efficiency.live.times import Gpu, GpuTimes, WorkerTimes
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.findings import in_a_line
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.figures import natural
from dask_efficiency.show.finding import Finding

#: Heartbeats between two compared observations at least: between two heartbeats a worker reports nothing.
HEARTBEATS = 2


@dataclass(frozen=True, slots=True)
class WorkerObservation:
    """A worker as its scheduler knows it."""

    nthreads: int
    #: Nanoseconds by activity since the accounts began.
    activity: Mapping[str, int]
    #: Thread-nanoseconds held so far by tasks that have not ended.
    running: int
    #: Tasks assigned and not finished.
    tasks: int
    status: str


@dataclass(frozen=True, slots=True)
class Observation:
    """Accounts of a cluster at one instant, as of the last heartbeats; times in nanoseconds since they began."""

    #: Identity of the accounts; new when the plugin is registered anew.
    session: str
    #: Now and the start of the accounts, by the scheduler's monotonic clock.
    at: int
    started: int
    #: With work outstanding.
    outstanding: int
    #: Between two heartbeats of a worker that are read.
    heartbeat_seconds: float
    nthreads: int
    workers: Mapping[str, WorkerObservation]
    more_workers: int
    #: Of the whole cluster.
    activity: Mapping[str, int]
    #: Including ``running``.
    buckets: Mapping[str, int]
    tasks: Mapping[str, int]
    #: By GPU that one worker uses alone: in kernels, copies and idle since it was watched.
    gpus: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: With work outstanding and without any worker.
    no_workers: int = 0
    #: Parts of ``activity`` and of ``buckets`` by :data:`~dask_efficiency.accounts.buckets.CAUSE_NAMES`, where known.
    causes: Mapping[str, int] = field(default_factory=dict)
    bucket_causes: Mapping[str, int] = field(default_factory=dict)
    not_sampled: Mapping[str, str] = field(default_factory=dict)
    #: Bytes and counts of data that moved, by ``way/unit``.
    amounts: Mapping[str, int] = field(default_factory=dict)
    #: Number of workers that were lost lately with a key in a thread, if several, the most first.
    killers: Mapping[str, int] = field(default_factory=dict)
    #: Work that stands still.
    stalls: tuple[StalledWork, ...] = ()
    #: Time until all that is outstanding is done; None where it cannot be said.
    time_left: TimeLeft | None = None
    memory: MemoryNow = field(default_factory=MemoryNow)

    @property
    def details(self) -> Details:
        """Workers in the order of their names, GPUs, and data."""
        names = tuple(sorted(self.workers, key=natural))
        activity = _table((self.workers[name].activity for name in names), ACTIVITIES)
        workers = WorkerTimes(names, activity, names, tuple(self.workers[name].nthreads for name in names))
        gpus = tuple(Gpu("", "", key) for key in self.gpus)
        of_gpus = GpuTimes(tuple(self.gpus), _table(self.gpus.values(), GPU_ACTIVITIES), gpus)
        return Details(self.at, workers, of_gpus, amounts=self.amounts, memory=self.memory)


def _table(rows: Iterable[Mapping[str, int]], columns: Sequence[str]) -> NDArray[np.int64]:
    table = [[row.get(column, 0) for column in columns] for row in rows]
    return np.array(table, dtype=np.int64).reshape(-1, len(columns))


def read(payload: Mapping[str, Any]) -> Observation:
    """Observation from a scheduler's reply; raises ValueError if it is something else, as of another version."""
    try:
        workers = {name: WorkerObservation(**worker) for name, worker in payload["workers"].items()}
        stalls = decode_stalls(payload.get("stalls", ()))
        memory = _memory(mapping("memory", payload.get("memory", {})))
        left = decode_left(payload.get("time_left"))
        known = {"workers": workers, "stalls": stalls, "time_left": left, "memory": memory}
        return Observation(**{**payload, **known})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the scheduler has another version of dask-efficiency: {error}") from error


def _memory(payload: Mapping[str, Any]) -> MemoryNow:
    sizes = {name: whole(name, value) for name, value in payload.items() if name not in ("prefixes", "fullest")}
    prefixes = mapping("prefixes", payload.get("prefixes", {})).items()
    return MemoryNow(
        prefixes={text("prefix", prefix): whole("bytes of a prefix", nbytes) for prefix, nbytes in prefixes},
        fullest=text("fullest", payload.get("fullest", "")),
        **sizes,
    )


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
    killers: Mapping[str, int]
    life: EfficiencyReport
    #: What stands still, and what costs most, of what is running.
    findings: tuple[Finding, ...] = ()
    time_left: TimeLeft | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that are not finite are None."""
        last, life, gpus = self.last, self.life, self.last.gpus
        return {
            "scheduler": self.source,
            "seconds": last.seconds,
            "nthreads": last.nthreads,
            "headline": in_a_line(last.report),
            "efficiency": finite(last.report.efficiency),
            "findings": [one.to_dict() for one in self.findings],
            "seconds_left": None if self.time_left is None else asdict(self.time_left),
            "threads": last.threads,
            "threads_by_cause": last.threads_by_cause,
            "tasks": dict(self.tasks),
            "moved_bytes": last.moved,
            "joined": list(self.joined),
            "left": list(self.left),
            "killers": dict(self.killers),
            "memory_bytes": asdict(last.now.memory),
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
                "efficiency": finite(life.efficiency),
                "thread_seconds": dict(life.breakdown),
                "moved_bytes": last.moved_in_all,
            },
        }


def top_view(then: Observation | None, now: Observation, *, source: str) -> TopView:
    """View of the time between two observations of the same accounts; since they began if ``then`` is None."""
    start = then or replace(now, at=now.started, activity={}, causes={}, tasks={}, more_workers=0)
    # If not all workers are named, a worker that is no longer named may still be present.
    all_named = now.more_workers == start.more_workers == 0
    last = LastSeconds(
        seconds=(now.at - start.at) / 1e9,
        nthreads=now.nthreads,
        facts=facts_between(start, now),
        then=Details(start.at) if then is None else then.details,
        now=now.details,
        not_sampled=now.not_sampled,
    )
    life = EfficiencyReport(
        name="life",
        started=0.0,
        window_seconds=(now.at - now.started) / 1e9,
        cluster_seconds=max(0, now.outstanding - now.no_workers) / 1e9,
        no_workers_seconds=now.no_workers / 1e9,
        facts=Facts.of_views({ALL_WORKERS: now.buckets}, causes={ALL_WORKERS: now.bucket_causes}),
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
        killers=now.killers,
        life=life,
        findings=running_findings(last, now.stalls),
        time_left=now.time_left,
    )
