"""What a user asks of a live cluster's metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed import Client
from distributed.protocol import Serialize

from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.plugin import names
from dask_efficiency.plugin.client.questions import Caller, ask, sync


def worker_series(client: Client | None = None, seconds: float = 900.0) -> Any:
    """The workers' metrics of the last minutes, for :func:`~dask_efficiency.stragglers`; no trace is needed.

    Parameters
    ----------
    client
        The current client by default.
    seconds
        How far back; the scheduler remembers as much as the option ``worker_series`` says.

    Returns
    -------
    MetricSeries
        Of the workers that are there now, every five seconds: shares of busy time, memory, network, disk, event loop,
        and the sensors of host and GPUs. Attributes ``metrics``, ``workers``, ``hosts``, ``groups`` (those of one group
        are comparable), ``start``, ``step_seconds`` and ``values`` of shape (metrics, workers, samples), NaN where
        nothing is known. An awaitable if the client is asynchronous.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    ValueError
        If ``seconds`` is not a positive number.
    """
    return sync(client, ask_series, seconds)


async def ask_series(caller: Caller, seconds: float = 900.0) -> MetricSeries:
    """The workers' metrics of the last seconds, as far as the scheduler remembers; see ``worker_series``.

    Raises
    ------
    ValueError
        If ``seconds`` is not a positive number.
    """
    if not 0 < seconds < float("inf"):
        raise ValueError(f"seconds is {seconds!r}; expected a positive number")
    payload = await ask(caller, names.SERIES, seconds=float(seconds))
    values = payload["values"]
    # Within one process they travel as they are, wrapped.
    values = values.data if isinstance(values, Serialize) else values
    return MetricSeries(
        metrics=tuple(payload["metrics"]),
        workers=tuple(payload["workers"]),
        groups=tuple(payload["groups"]),
        hosts=tuple(payload["hosts"]),
        start=float(payload["start"]),
        step_seconds=float(payload["step_seconds"]),
        values=np.asarray(values, np.float32),
    )
