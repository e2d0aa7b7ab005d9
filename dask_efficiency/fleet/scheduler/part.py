"""Metrics: the scheduler's part that remembers its workers' metrics, and finds outliers among them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from distributed.protocol import to_serialize

from dask_efficiency.fleet.scheduler.outlier_watch import OutlierWatch
from dask_efficiency.fleet.scheduler.worker_series import WorkerSeries
from dask_efficiency.plugin.options import Options
from dask_efficiency.plugin.parts import SchedulerPart
from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState


class Metrics(SchedulerPart):
    """Remembers the workers' metrics, and gives the watch for stragglers the outliers among them.

    Parameters
    ----------
    accounts
        The cluster's accounts.
    options
        Gives the options in force.
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
        """Remember as much as the option says."""
        self.series.limit(self._options().worker_series)

    def worker_joined(self, address: str, ws: WorkerState) -> None:  # noqa: D102
        self.series.worker_joined(address, ws)

    def worker_left(self, address: str, stimulus_id: str | None) -> None:  # noqa: D102
        self.series.worker_left(address)

    def take_heartbeat(self, address: str, ws: WorkerState, at: int) -> None:  # noqa: D102
        self.series.take_heartbeat(address, ws, at)

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The last seconds of the metrics; put together on a thread, as they may be megabytes."""
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
