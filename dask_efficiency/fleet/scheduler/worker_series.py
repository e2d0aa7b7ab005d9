"""WorkerSeries: the last minutes of every worker's metrics, from the heartbeats, with no recording."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import sub
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import place
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.sensors import GPU_SENSORS, HOST_SENSORS, gpu_sensors
from dask_efficiency.fleet.outliers.block_signals import BLOCK_SAMPLES, BLOCK_SECONDS
from dask_efficiency.fleet.outliers.metric_series import METRICS, REACH_SECONDS, MetricSeries, Values, filled
from dask_efficiency.fleet.scheduler.outlier_watch import OutlierWatch
from dask_efficiency.plugin.guard import MAX_REASON
from dask_efficiency.plugin.options import Options
from dask_efficiency.plugin.parts import SchedulerPart
from dask_efficiency.plugin.plain import carried
from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts
from dask_efficiency.plugin.scheduler.heartbeats import DASK_METRICS, dask_metric, host_sensors
from dask_efficiency.plugin.scheduler.straggler_watch import comparable
from dask_efficiency.show.log import logger
from dask_efficiency.straggler.history import FIRST_SAMPLES
from dask_efficiency.straggler.peers import LITTLE

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState


#: Seconds between two samples: a heartbeat of a cluster of 800 workers. The outlier detector averages a block of them.
STEP_SECONDS = BLOCK_SECONDS / BLOCK_SAMPLES


class SeriesRing:
    """Last samples of one worker, 4 bytes of each metric and 8 more; each is the mean of the reports in its step."""

    __slots__ = ("_counts", "_first", "_held", "_place", "_step", "_steps", "_sums", "_values")

    def __init__(self, metrics: int, steps: int) -> None:
        #: By place in the ring, a sample, and its step; the place of the newest, and the number of places at most.
        self._values = np.zeros((min(steps, FIRST_SAMPLES), metrics), np.float32)
        self._held = np.full(len(self._values), -1, np.int64)
        self._place, self._steps = -1, steps
        #: Newest step; sum of its reports, and number of them by metric.
        self._step = -1
        self._sums, self._counts = np.zeros((2, metrics))
        #: First report of it, not yet in the sums: with many workers there is one report a step.
        self._first: Sequence[float] | None = None

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(array.nbytes for array in (self._values, self._held, self._sums, self._counts))

    @property
    def known(self) -> bool:
        """True from the first report on."""
        return self._step >= 0

    def add(self, values: Sequence[float], step: int) -> None:
        """Add a report, NaN where it has no number; one of an older step than the newest came late, and is left out."""
        if step < self._step:
            return
        if step != self._step:
            self._step, self._first, self._place = step, values, (self._place + 1) % self._steps
            if self._place == len(self._held):  # what is repeated is overwritten
                rows = min(2 * len(self._held), self._steps)
                self._held, self._values = np.resize(self._held, rows), np.resize(self._values, (rows, len(values)))
            self._held[self._place] = step
            self._values[self._place] = values
            return
        if self._first is not None:
            self._sums.fill(0)
            self._counts.fill(0)
            self._sum(self._first)
            self._first = None
        self._sum(values)
        np.divide(self._sums, self._counts, out=self._values[self._place], where=self._counts > 0, casting="same_kind")

    def _sum(self, values: Sequence[float]) -> None:
        row = np.array(values)
        known = row == row
        np.add(self._sums, row, out=self._sums, where=known)
        self._counts += known

    def read(self, steps: NDArray[np.int64]) -> Values:
        """Samples of some steps, shape (steps, metrics); NaN without a report, or if it is too old."""
        order = np.argsort(self._held)
        places = order[np.searchsorted(self._held[order], steps).clip(max=len(order) - 1)]
        found: Values = self._values[places]
        found[(self._held[places] != steps) | (steps <= self._step - self._steps)] = np.nan
        return found


@dataclass(slots=True, eq=False)
class RememberedWorker:
    """Memory of a present worker, and its account at its last heartbeat."""

    name: str
    host: str
    group: str
    ring: SeriesRing
    account: Sequence[int] | None = None


_SHARES = tuple(name for name, metric in METRICS.items() if metric.of_busy_time)
_OF_DASK = tuple(name for name in METRICS if name in DASK_METRICS)
#: Metrics that are remembered, in this order.
NAMES = (*_SHARES, *_OF_DASK, *HOST_SENSORS, *GPU_SENSORS)


def series_of(
    workers: Sequence[RememberedWorker], first: int, last: int, *, ahead: float, metrics: Sequence[str] = NAMES
) -> MetricSeries:
    """Metric series of some workers over some steps since the first report, of the metrics that any of them has."""
    # Where a worker's heartbeats are further apart than a step, the sample nearest in time counts, as in a trace. Step
    # 0 began ``ahead`` seconds after the epoch.
    steps = np.arange(first, last + 1)
    samples = np.full((len(workers), len(steps), len(metrics)), np.nan, np.float32)
    for row, worker in enumerate(workers):
        samples[row] = worker.ring.read(steps)
    there = np.flatnonzero(~np.isnan(samples).all(axis=(0, 2)))
    begin = int(there[0]) if len(there) else len(steps)
    samples = samples[:, begin:]
    known = [j for j in range(len(metrics)) if not np.isnan(samples[:, :, j]).all()]
    values = np.empty((len(known), *samples.shape[:2]), np.float32)
    for at, metric in enumerate(known):
        values[at] = filled(samples[:, :, metric], reach=int(REACH_SECONDS / STEP_SECONDS))
    return MetricSeries(
        metrics=tuple(metrics[j] for j in known),
        workers=tuple(worker.name for worker in workers),
        groups=tuple(worker.group for worker in workers),
        hosts=tuple(worker.host for worker in workers),
        start=first * STEP_SECONDS + ahead + begin * STEP_SECONDS,
        step_seconds=STEP_SECONDS,
        values=values,
    )


#: Positions in an account of the time with work by activity, and of the time without.
_BUSY = [place("activity", Bucket(name.replace("_", "-"))) for name in _SHARES]
_FREE = [place("activity", bucket) for bucket in (Bucket.IDLE, Bucket.NO_WORK, Bucket.CONSTRAINED)]
_PLACES = np.array([*_BUSY, *_FREE])
_NO_SHARES = (math.nan,) * len(_SHARES)


def _shares(before: Sequence[int] | None, now: Sequence[int]) -> Sequence[float]:
    """Share of busy time that slots spent in each way; NaN if there was hardly any."""
    if before is None:
        return _NO_SHARES
    gained = list(map(sub, now, before))
    busy = sum(gained[: len(_BUSY)])
    return [ns / busy for ns in gained[: len(_BUSY)]] if busy > LITTLE * sum(gained) else _NO_SHARES


class WorkerSeries(SchedulerPart):
    """Part of the scheduler that remembers the workers' metrics, and adds the outliers among them to the stragglers."""

    def __init__(self, accounts: ClusterAccounts, options: Callable[[], Options]) -> None:
        self._accounts = accounts
        self._options = options
        self._seconds = options().worker_series
        self._workers: dict[str, RememberedWorker] = {}
        #: First failure; empty without one.
        self._failed = ""
        accounts.stragglers.outliers = OutlierWatch(self.reader, lambda: options().outliers)

    @classmethod
    def of(cls, meter: Any) -> Self:  # noqa: D102
        return cls(meter.accounts, lambda: meter.options)

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes: 50 kB a worker for twenty minutes, where there is a heartbeat in each step."""
        return sum(worker.ring.nbytes for worker in self._workers.values())

    async def configured(self) -> None:
        """Apply the option ``worker_series``; another length forgets everything."""
        if self._options().worker_series != self._seconds:
            self._seconds = self._options().worker_series
            for worker in self._workers.values():
                worker.ring = self._new_ring()

    def _new_ring(self) -> SeriesRing:
        return SeriesRing(len(NAMES), max(1, round(self._seconds / STEP_SECONDS)))

    def worker_joined(self, address: str, ws: WorkerState) -> None:  # noqa: D102
        with self._alone(address):
            self._join(address, ws)

    def _join(self, address: str, ws: WorkerState) -> None:
        group = json.dumps(comparable(ws), default=str)
        self._workers[address] = RememberedWorker(fitting(ws.name), fitting(ws.host), group, self._new_ring())

    def worker_left(self, address: str, stimulus_id: str | None) -> None:  # noqa: D102
        self._workers.pop(address, None)

    def take_heartbeat(self, address: str, ws: WorkerState, at: int) -> None:  # noqa: D102
        with self._alone(address):
            self._take_heartbeat(address, ws, at)

    @contextmanager
    def _alone(self, address: str) -> Iterator[None]:
        """Keep a failure from the others: that worker has a gap; the first one is logged."""
        try:
            yield
        except Exception as error:
            if not self._failed:
                self._failed = f"the series of {address} failed: {type(error).__name__}: {error}"[:MAX_REASON]
                logger.exception("dask_efficiency remembers no metrics of %s where that fails", address)

    def _take_heartbeat(self, address: str, ws: WorkerState, at: int) -> None:
        cluster = self._accounts.cluster
        worker, presence = self._workers.get(address), cluster.present.get(address)
        if worker is None or presence is None:
            return
        before, worker.account = worker.account, presence.account[_PLACES].tolist()
        row = [
            *_shares(before, worker.account),
            *[dask_metric(ws.metrics, name) for name in _OF_DASK],
            *host_sensors(ws.metrics).tolist(),
            *gpu_sensors(cluster.gpu_readings(address)),
        ]
        worker.ring.add(row, int(at / (STEP_SECONDS * 1e9)))

    def reader(self, seconds: float) -> Callable[[], MetricSeries]:
        """Function that gives the last seconds of present workers, as far as remembered, on any thread."""
        if self._failed and not any(worker.ring.known for worker in self._workers.values()):
            raise RuntimeError(self._failed)
        now = time.monotonic_ns()
        last = int(now / (STEP_SECONDS * 1e9))
        first = max(0, last + 1 - max(1, round(min(seconds, self._seconds) / STEP_SECONDS)))
        return partial(series_of, list(self._workers.values()), first, last, ahead=time.time() - now / 1e9)

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Metrics of the last seconds; collected on a thread, as they may be megabytes."""
        await self._accounts.poll_all()
        series = await asyncio.to_thread(self.reader(asked["seconds"]))
        lists = {name: list(getattr(series, name)) for name in ("metrics", "workers", "groups", "hosts")}
        figures = {"start": series.start, "step_seconds": series.step_seconds}
        return {**lists, **figures, "values": carried(series.values)}
