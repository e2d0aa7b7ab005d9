"""Observation: what a scheduler answers when `dask-efficiency top` asks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.live.gpus import Gpu, GpuCounters
from dask_efficiency.live.last_seconds import Details
from dask_efficiency.live.workers import WorkerCounters
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
