"""What a user asks of a live cluster's accounts: a report of its whole life, or in retrospect."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from distributed import Client

from dask_efficiency.plugin import names
from dask_efficiency.plugin.client.questions import Caller, ask, sync
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.replies import report_of, unpacked


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
    return sync(client, ask_life)


async def ask_life(caller: Caller) -> EfficiencyReport:
    """The accounts since they began."""
    payload = await ask_report(caller, names.LIFE)
    return report_of(payload, name="snapshot", started=float(payload["since"]))


async def ask_history(caller: Caller, last: float | None) -> EfficiencyReport:
    """A report in retrospect."""
    payload = await ask_report(caller, names.HISTORY, last=last)
    seconds = payload["window"] / 1e9
    name = "all history" if last is None else f"last {seconds:.3g} s"
    return report_of(payload, name=name, started=time.time() - seconds)


async def ask_report(caller: Caller, action: str, /, **kwargs: Any) -> dict[str, Any]:
    """The same, of an action whose answer a report is made of."""
    return await asyncio.to_thread(unpacked, await ask(caller, action, **kwargs))
