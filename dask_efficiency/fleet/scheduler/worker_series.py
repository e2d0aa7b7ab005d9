"""WorkerSeries: the last minutes of every worker's metrics, from the heartbeats, with no recording."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import sub
from typing import TYPE_CHECKING

import numpy as np

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import place
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.sensors.gpus import gpu_sensors
from dask_efficiency.accounts.sensors.names import GPU_SENSORS, HOST_SENSORS
from dask_efficiency.fleet.outliers.metric_series import METRICS, MIN_BUSY, MetricSeries
from dask_efficiency.fleet.outliers.series_ring import STEP_SECONDS, SeriesRing, series_of
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.scheduler.heartbeat_metrics import DASK_METRICS, dask_metric, host_sensors
from dask_efficiency.plugin.scheduler.straggler_watch import comparable

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

_SHARES = tuple(name for name, metric in METRICS.items() if metric.of_busy_time)
_OF_DASK = tuple(name for name in METRICS if name in DASK_METRICS)

#: The metrics that are remembered, in this order.
NAMES = (*_SHARES, *_OF_DASK, *HOST_SENSORS, *GPU_SENSORS)

#: Where an account has what slots do while they have work, and while they have none.
_BUSY = [place("activity", Bucket(name.replace("_", "-"))) for name in _SHARES]
_FREE = [place("activity", bucket) for bucket in (Bucket.IDLE, Bucket.NO_WORK, Bucket.CONSTRAINED)]
_PLACES = np.array([*_BUSY, *_FREE])
_NO_SHARES = (math.nan,) * len(_SHARES)


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker that is there, and its account at its last heartbeat."""

    name: str
    host: str
    group: str
    ring: SeriesRing
    account: Sequence[int] | None = field(default=None)


class WorkerSeries:
    """Remembers the workers that are there. If it fails, it says so once and the meter goes on without it.

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
        """Why nothing is remembered any more; None while it is."""
        return self._guard.off

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays: 50 kB a worker for twenty minutes."""
        return sum(worker.ring.nbytes for worker in self._workers.values())

    def limit(self, seconds: float) -> None:
        """Remember so much from now on; where that is another length, what was remembered is forgotten."""
        if seconds != self._seconds:
            self._seconds = seconds
            for worker in self._workers.values():
                worker.ring = self._new_ring()

    def _new_ring(self) -> SeriesRing:
        return SeriesRing(len(NAMES), max(1, round(self._seconds / STEP_SECONDS)))

    def worker_joined(self, address: str, ws: WorkerState) -> None:
        """A worker is there."""
        self._guard(self._join, address, ws)

    def _join(self, address: str, ws: WorkerState) -> None:
        group = json.dumps(comparable(ws), default=str)
        self._workers[address] = _Worker(str(ws.name), str(ws.host), group, self._new_ring())

    def worker_left(self, address: str) -> None:
        """A worker was removed, and what it did is forgotten."""
        self._workers.pop(address, None)

    def take_heartbeat(self, address: str, ws: WorkerState, at: int) -> None:
        """Take a heartbeat in; ``at`` is when it came, in monotonic nanoseconds."""
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
        """What gives the last seconds of the workers that are there now; it may be called on any thread.

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
    """The share of their busy time that slots spent in each way; NaN where there was hardly any."""
    gained = list(map(sub, now, before))
    busy = sum(gained[: len(_BUSY)])
    return [ns / busy for ns in gained[: len(_BUSY)]] if busy > MIN_BUSY * sum(gained) else _NO_SHARES
