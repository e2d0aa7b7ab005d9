"""Questions to a live cluster about its runs: its trace, and its stragglers with their cost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from distributed import Client

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.plugin import names
from dask_efficiency.plugin.client import Caller, ask, sync
from dask_efficiency.plugin.wings import offered
from dask_efficiency.runs.recording.recordings import unpack
from dask_efficiency.runs.stragglers.offline import find_stragglers, with_cost
from dask_efficiency.runs.trace.build import build
from dask_efficiency.runs.trace.run_trace import RunTrace

if TYPE_CHECKING:
    import pandas as pd


def get_trace(client: Client | None = None) -> Any:
    """Get the cluster's recording: every task, transition and transfer that it still remembers.

    Parameters
    ----------
    client
        The current client by default.

    Returns
    -------
    RunTrace
        The recording until now. An awaitable if the client is asynchronous.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    RuntimeError
        If the cluster does not record: it does with ``EfficiencyPlugin(trace=True)``, and while an
        ``efficiency_report(trace=True)`` is open.
    """
    return sync(client, ask_trace)


async def ask_trace(caller: Caller) -> RunTrace:
    """Get the cluster's recording. Raises RuntimeError if it does not record."""
    payload = await ask(caller, names.TRACE)
    return await asyncio.to_thread(lambda: build(unpack(payload), name="trace"))


def stragglers(source: Client | RunTrace | pd.DataFrame | Any | None = None, **options: Any) -> Any:
    """Find workers that take longer than their peers for the same work, or whose metrics differ from those of others.

    Parameters
    ----------
    source
        A client, by default the current one: who is slow now. A recorded run, or a table with a row for each task: who
        was slow in it. Metrics of workers or machines, as :func:`~dask_efficiency.fleet.worker_series` gives them, or a
        table with the columns ``at`` and ``worker`` and one for each metric: whose metrics differ from its peers'.
    **options
        For a run or a table of tasks ``history`` and ``factor``, see
        :func:`~dask_efficiency.runs.stragglers.offline.find_stragglers`; for metrics those of
        :func:`~dask_efficiency.fleet.find_outliers`.

    Returns
    -------
    tuple of SlowWorker
        The most certain first; empty if there is none. An awaitable if the client is asynchronous. While the cluster
        records, ``seconds_lost`` comes from a replay of what was recorded, which takes this process seconds for a
        hundred thousand tasks; else it is None.

    Raises
    ------
    NotRegisteredError
        If the plugin is not on the scheduler.
    TypeError
        If the source is something else, or an option is not one of its.
    ValueError
        If a table lacks a column, or an option is not in its range.
    """
    if source is None or isinstance(source, Client):
        if options:
            raise TypeError(f"a live cluster takes no options; got {', '.join(sorted(options))}")
        return sync(source, ask_stragglers)
    if isinstance(source, RunTrace) or "prefix" in getattr(source, "columns", ()):
        return tuple(find_stragglers(source, **options))
    if not (has_metrics(source) or hasattr(source, "step_seconds")):
        raise TypeError(
            f"source is {type(source).__name__}; expected a client, a recorded run, a table of tasks or metrics"
        )
    find_outliers = offered("outliers/fleet")
    if find_outliers is None:
        raise TypeError("metrics are judged by dask_efficiency.fleet, which is not installed")
    return tuple(find_outliers(source, **options))


def has_metrics(source: Any) -> bool:
    """True for a table of metrics, rather than of tasks."""
    columns = getattr(source, "columns", ())
    return "at" in columns and "worker" in columns and "prefix" not in columns


async def ask_stragglers(caller: Caller) -> tuple[SlowWorker, ...]:
    """Ask the live detector for the slow workers; with their cost if the cluster records."""
    payload = await ask(caller, names.STRAGGLERS)
    findings = tuple(map(SlowWorker.from_dict, payload["stragglers"]))
    if not findings:
        return findings
    try:
        trace = await ask_trace(caller)
    except RuntimeError:  # it does not record
        return findings
    return await asyncio.to_thread(with_cost, trace, findings)
