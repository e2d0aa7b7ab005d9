"""Metrics of a Dask cluster's workers, for users and for a watch of the cluster, and the workers' retirement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from distributed import Client

from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.rounds.exclusions import LeavingOut
from dask_efficiency.fleet.scheduler.worker_series import STEP_SECONDS
from dask_efficiency.plugin import names
from dask_efficiency.plugin.client import Caller, NoAnswerError, ask, call, sync
from dask_efficiency.straggler.retirements import RETIRE_SECONDS


def worker_series(client: Client | None = None, seconds: float = 900.0) -> Any:
    """Metrics of the workers in the last minutes, for :func:`~dask_efficiency.stragglers`; no trace is needed.

    Parameters
    ----------
    client
        The current client by default.
    seconds
        How far back; the option ``worker_series`` limits how much the scheduler remembers.

    Returns
    -------
    MetricSeries
        Metrics of present workers, every five seconds: shares of busy time, memory, network, disk, event loop, and the
        sensors of host and GPUs. Attributes ``metrics``, ``workers``, ``hosts``, ``groups`` (workers of one group are
        comparable), ``start``, ``step_seconds`` and ``values`` of shape (metrics, workers, samples), NaN if unknown. An
        awaitable if the client is asynchronous.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    ValueError
        If ``seconds`` is not a positive number.
    """
    return sync(client, ask_series, seconds)


async def ask_series(caller: Caller, seconds: float = 900.0) -> MetricSeries:
    """Metrics of the workers in the last seconds, as far as the scheduler remembers; see ``worker_series``."""
    if not 0 < seconds < float("inf"):
        raise ValueError(f"seconds is {seconds!r}; expected a positive number")
    payload = await ask(caller, names.SERIES, seconds=float(seconds))
    metrics, workers, groups, hosts = (tuple(payload[name]) for name in ("metrics", "workers", "groups", "hosts"))
    start, step = float(payload["start"]), float(payload["step_seconds"])
    with np.errstate(over="ignore"):  # what is too large is infinite
        values = np.asarray(payload["values"], np.float32)
    return MetricSeries(metrics, workers, groups, hosts, start, step, values)


#: Asks the scheduler a question, and returns the answer.
Asking = Callable[[Callable[[Caller], Awaitable[Any]]], Any]


@dataclass(frozen=True, slots=True)
class SchedulerSource:
    """Metrics of a cluster's workers, as far back as its scheduler remembers them."""

    #: The scheduler's address.
    name: str
    asking: Asking
    timeout_seconds: float = 30.0
    step_seconds: float = STEP_SECONDS

    def pull(self, *, start: float, stop: float, leave_out: LeavingOut | None = None) -> MetricSeries:
        """Metrics of the last ``stop - start`` seconds, which end at ``stop`` whatever the scheduler's clock shows."""
        series: MetricSeries = self.asking(partial(self._asked, seconds=max(stop - start, self.step_seconds)))
        if series.step_seconds != self.step_seconds:  # a tiny one would make endless tables of two answers
            wrong = f"the scheduler at {self.name} has a sample in {series.step_seconds:g} s"
            raise ValueError(f"{wrong}; expected one in {self.step_seconds:g} s")
        return replace(series, start=stop - series.values.shape[2] * series.step_seconds)

    async def _asked(self, caller: Caller, seconds: float) -> MetricSeries:
        try:
            return await asyncio.wait_for(ask_series(caller, seconds), self.timeout_seconds)
        except TimeoutError as error:
            wrong = f"the scheduler at {self.name} gave no metrics in {self.timeout_seconds:g} s"
            raise NoAnswerError(wrong) from error

    def check(self, series: MetricSeries, /) -> None:
        """Accept anything: a cluster without workers gets some later."""


async def retire(caller: Caller, name: str) -> bool:
    """Move a worker's data to others, and end it; False if there is no such worker."""
    retiring = call(caller, "retire_workers", names=[name], close_workers=True, remove=True)
    return bool(await asyncio.wait_for(retiring, RETIRE_SECONDS))
