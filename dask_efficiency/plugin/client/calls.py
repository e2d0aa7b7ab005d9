"""What a user asks of a live cluster: a snapshot, its trace, its stragglers, its metrics."""

from __future__ import annotations

import contextlib
from typing import Any

from distributed import Client, get_client

from dask_efficiency.plugin.client.questions import (
    NotRegisteredError,
    ask,
    ask_life,
    ask_series,
    ask_stragglers,
    ask_trace,
)
from dask_efficiency.plugin.names import UNREGISTER


def snapshot(client: Client | None = None) -> Any:
    """The cluster's accounts since the plugin was registered, exact to this instant.

    Parameters
    ----------
    client
        The current client by default.

    Returns
    -------
    EfficiencyReport
        ``.breakdown`` and ``.by_worker`` are cumulative. An awaitable if the client is asynchronous.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    """
    return _sync(client, ask_life)


def get_trace(client: Client | None = None) -> Any:
    """What the cluster recorded: every task, transition and transfer that it still remembers.

    Parameters
    ----------
    client
        The current client by default.

    Returns
    -------
    RunTrace
        Of what was recorded until now. An awaitable if the client is asynchronous.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    RuntimeError
        If the cluster does not record: it does with ``EfficiencyPlugin(trace=True)``, and while an
        ``efficiency_report(trace=True)`` is open.
    """
    return _sync(client, ask_trace)


def stragglers(client: Client | None = None) -> Any:
    """The workers that take longer now than their peers for the same work: ``dask_efficiency.stragglers(client)``.

    Parameters
    ----------
    client
        The current client by default.

    Returns
    -------
    tuple of Finding
        The most certain first; empty if there is none. An awaitable if the client is asynchronous. While the cluster
        records, ``seconds_lost`` comes from a replay of what was recorded, which takes this process seconds for a
        hundred thousand tasks; else it is None.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    """
    return _sync(client, ask_stragglers)


def worker_series(client: Client | None = None, seconds: float = 900.0) -> Any:
    """The workers' metrics of the last minutes, as :func:`~dask_efficiency.find_outliers` takes them; no trace needed.

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
    return _sync(client, ask_series, seconds)


def unregister(client: Client | None = None) -> Any:
    """Take the plugin off the scheduler and all workers; a no-op where it is not registered."""
    return _sync(client, _unregister)


async def _unregister(client: Client) -> None:
    with contextlib.suppress(NotRegisteredError):
        await ask(client, UNREGISTER)


def _sync(client: Client | None, function: Any, *args: Any) -> Any:
    client = client if client is not None else get_client()
    return client.sync(function, client, *args)
