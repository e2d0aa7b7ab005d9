"""WorkerSeries: the last minutes of every worker's metrics, from the heartbeats, with no recording."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import sub
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from distributed.protocol import to_serialize
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import place
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.sensors import GPU_SENSORS, HOST_SENSORS, gpu_sensors
from dask_efficiency.fleet.outliers.metric_series import METRICS, MIN_BUSY, REACH_SECONDS, MetricSeries, Values, filled
from dask_efficiency.fleet.scheduler.outlier_watch import OutlierWatch
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.options import Options
from dask_efficiency.plugin.parts import SchedulerPart
from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts
from dask_efficiency.plugin.scheduler.heartbeats import DASK_METRICS, dask_metric, host_sensors
from dask_efficiency.plugin.scheduler.straggler_watch import comparable

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState


#: Seconds between two samples: a heartbeat of a cluster of 800 workers. The outlier detector averages three.
STEP_SECONDS = 5.0


class SeriesRing:
    """Last minutes of one worker; a sample is the mean of the reports within its step.

    Parameters
    ----------
    metrics
        Number of metrics.
    steps
        Number of steps remembered: 4 bytes of each metric, and 8 more.
    """

    __slots__ = ("_counts", "_first", "_held", "_step", "_sums", "_values")

    def __init__(self, metrics: int, steps: int) -> None:
        #: By place in the ring, a sample, and its step.
        self._values = np.full((steps, metrics), np.nan, np.float32)
        self._held = np.full(steps, -1, np.int64)
        #: Newest step; sum of its reports, and number of them by metric.
        self._step = -1
        self._sums = np.zeros(metrics)
        self._counts = np.zeros(metrics)
        #: First report of it, not yet in the sums: with many workers there is one report a step.
        self._first: Sequence[float] | None = None

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(array.nbytes for array in (self._values, self._held, self._sums, self._counts))

    def add(self, values: Sequence[float], step: int) -> None:
        """Add a report; one of an older step than the newest came late, and is left out.

        Parameters
        ----------
        values
            By metric; NaN if not reported.
        step
            Its number, not negative.
        """
        if step < self._step:
            return
        place = step % len(self._held)
        if step != self._step:
            self._step, self._first = step, values
            self._held[place] = step
            self._values[place] = values
            return
        if self._first is not None:
            self._sums.fill(0)
            self._counts.fill(0)
            self._sum(self._first)
            self._first = None
        self._sum(values)
        np.divide(self._sums, self._counts, out=self._values[place], where=self._counts > 0, casting="same_kind")

    def _sum(self, values: Sequence[float]) -> None:
        row = np.array(values)
        known = row == row
        np.add(self._sums, row, out=self._sums, where=known)
        self._counts += known

    def read(self, steps: NDArray[np.int64]) -> Values:
        """Samples of some steps, shape (steps, metrics); NaN without a report, or if it is too old."""
        places = steps % len(self._held)
        found = self._values[places]
        found[self._held[places] != steps] = np.nan
        return found


def series_of(
    rings: Sequence[SeriesRing],
    *,
    metrics: Sequence[str],
    workers: Sequence[str],
    groups: Sequence[str],
    hosts: Sequence[str],
    first: int,
    last: int,
    start: float,
) -> MetricSeries:
    """Metric series of some workers over some steps, of the metrics that any of them has.

    Where a worker's heartbeats are further apart than a step, the sample nearest in time counts, as in a trace.

    Parameters
    ----------
    rings, workers, groups, hosts
        By worker.
    metrics
        In the order of the rings.
    first, last
        Numbers of the first and the last step. Those before the first report are left out.
    start
        Seconds since the epoch at which the first step begins.
    """
    steps = np.arange(first, last + 1)
    samples = np.full((len(rings), len(steps), len(metrics)), np.nan, np.float32)
    for worker, ring in enumerate(rings):
        samples[worker] = ring.read(steps)
    there = np.flatnonzero(~np.isnan(samples).all(axis=(0, 2)))
    begin = int(there[0]) if len(there) else len(steps)
    samples = samples[:, begin:]
    known = [j for j in range(len(metrics)) if not np.isnan(samples[:, :, j]).all()]
    values = np.empty((len(known), *samples.shape[:2]), np.float32)
    for at, metric in enumerate(known):
        values[at] = filled(samples[:, :, metric], reach=int(REACH_SECONDS / STEP_SECONDS))
    return MetricSeries(
        metrics=tuple(metrics[j] for j in known),
        workers=tuple(workers),
        groups=tuple(groups),
        hosts=tuple(hosts),
        start=start + begin * STEP_SECONDS,
        step_seconds=STEP_SECONDS,
        values=values,
    )


_SHARES = tuple(name for name, metric in METRICS.items() if metric.of_busy_time)
_OF_DASK = tuple(name for name in METRICS if name in DASK_METRICS)

#: Metrics that are remembered, in this order.
NAMES = (*_SHARES, *_OF_DASK, *HOST_SENSORS, *GPU_SENSORS)

#: Positions in an account of the time with work by activity, and of the time without.
_BUSY = [place("activity", Bucket(name.replace("_", "-"))) for name in _SHARES]
_FREE = [place("activity", bucket) for bucket in (Bucket.IDLE, Bucket.NO_WORK, Bucket.CONSTRAINED)]
_PLACES = np.array([*_BUSY, *_FREE])
_NO_SHARES = (math.nan,) * len(_SHARES)


@dataclass(slots=True, eq=False)
class _Worker:
    """A present worker, and its account at its last heartbeat."""

    name: str
    host: str
    group: str
    ring: SeriesRing
    account: Sequence[int] | None = field(default=None)


class WorkerSeries:
    """Remembers present workers. If it fails, it logs that once and the meter goes on without it.

    Parameters
    ----------
    cluster
        The accounts.
    seconds
        How far back it remembers.
    """

    def __init__(self, cluster: ClusterLedger, seconds: float) -> None:
        self._cluster = cluster
        self._workers: dict[str, _Worker] = {}
        self._seconds = seconds
        self._guard = Guard("the workers' series", "dask_efficiency remembers the workers' metrics no more")

    @property
    def off(self) -> str | None:
        """Reason why it has failed; None while it works."""
        return self._guard.off

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes: 50 kB a worker for twenty minutes."""
        return sum(worker.ring.nbytes for worker in self._workers.values())

    def limit(self, seconds: float) -> None:
        """Set how much is remembered; another length forgets everything."""
        if seconds != self._seconds:
            self._seconds = seconds
            for worker in self._workers.values():
                worker.ring = self._new_ring()

    def _new_ring(self) -> SeriesRing:
        return SeriesRing(len(NAMES), max(1, round(self._seconds / STEP_SECONDS)))

    def worker_joined(self, address: str, ws: WorkerState) -> None:
        """Add a worker."""
        self._guard(self._join, address, ws)

    def _join(self, address: str, ws: WorkerState) -> None:
        group = json.dumps(comparable(ws), default=str)
        self._workers[address] = _Worker(str(ws.name), str(ws.host), group, self._new_ring())

    def worker_left(self, address: str) -> None:
        """Remove a worker, and forget its metrics."""
        self._workers.pop(address, None)

    def take_heartbeat(self, address: str, ws: WorkerState, at: int) -> None:
        """Take in a heartbeat that came at this instant, in monotonic nanoseconds."""
        self._guard(self._take_heartbeat, address, ws, at)

    def _take_heartbeat(self, address: str, ws: WorkerState, at: int) -> None:
        worker, presence = self._workers.get(address), self._cluster.present.get(address)
        if worker is None or presence is None:
            return
        before, worker.account = worker.account, presence.account[_PLACES].tolist()
        row = [
            *(_NO_SHARES if before is None else _shares(before, worker.account)),
            *[dask_metric(ws.metrics, name) for name in _OF_DASK],
            *host_sensors(ws.metrics).tolist(),
            *gpu_sensors(self._cluster.gpu_readings(address)),
        ]
        worker.ring.add(row, int(at / (STEP_SECONDS * 1e9)))

    def reader(self, seconds: float) -> Callable[[], MetricSeries]:
        """Function that gives the last seconds of present workers, on any thread.

        Parameters
        ----------
        seconds
            How far back; no further than is remembered.

        Raises
        ------
        RuntimeError
            If remembering has failed.
        """
        if self.off is not None:
            raise RuntimeError(self.off)
        now = time.monotonic_ns()
        ahead = time.time() - now / 1e9
        last = int(now / (STEP_SECONDS * 1e9))
        first = max(0, last + 1 - max(1, round(min(seconds, self._seconds) / STEP_SECONDS)))
        workers = list(self._workers.values())
        return partial(
            series_of,
            [worker.ring for worker in workers],
            metrics=NAMES,
            workers=[worker.name for worker in workers],
            groups=[worker.group for worker in workers],
            hosts=[worker.host for worker in workers],
            first=first,
            last=last,
            start=first * STEP_SECONDS + ahead,
        )


def _shares(before: Sequence[int], now: Sequence[int]) -> Sequence[float]:
    """Share of busy time that slots spent in each way; NaN if there was hardly any."""
    gained = list(map(sub, now, before))
    busy = sum(gained[: len(_BUSY)])
    return [ns / busy for ns in gained[: len(_BUSY)]] if busy > MIN_BUSY * sum(gained) else _NO_SHARES


class Metrics(SchedulerPart):
    """Part of the scheduler that remembers the workers' metrics, and adds the outliers among them to the stragglers.

    Parameters
    ----------
    accounts
        The cluster's accounts.
    options
        Returns the options in force.
    """

    def __init__(self, accounts: ClusterAccounts, options: Callable[[], Options]) -> None:
        self._accounts = accounts
        self._options = options
        self.series = WorkerSeries(accounts.cluster, options().worker_series)
        accounts.stragglers.outliers = OutlierWatch(self.series.reader, lambda: options().outliers)

    @classmethod
    def of(cls, meter: Any) -> Self:  # noqa: D102
        return cls(meter.accounts, lambda: meter.options)

    async def configured(self) -> None:
        """Apply the option ``worker_series``."""
        self.series.limit(self._options().worker_series)

    def worker_joined(self, address: str, ws: WorkerState) -> None:  # noqa: D102
        self.series.worker_joined(address, ws)

    def worker_left(self, address: str, stimulus_id: str | None) -> None:  # noqa: D102
        self.series.worker_left(address)

    def take_heartbeat(self, address: str, ws: WorkerState, at: int) -> None:  # noqa: D102
        self.series.take_heartbeat(address, ws, at)

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Metrics of the last seconds; collected on a thread, as they may be megabytes."""
        await self._accounts.poll_all()
        series = await asyncio.to_thread(self.series.reader(asked["seconds"]))
        return {
            "metrics": list(series.metrics),
            "workers": list(series.workers),
            "groups": list(series.groups),
            "hosts": list(series.hosts),
            "start": series.start,
            "step_seconds": series.step_seconds,
            "values": to_serialize(series.values),
        }
