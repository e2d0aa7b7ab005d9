"""MeasuredTests: a report of each cluster that a test uses, whichever fixture or line its client comes from."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from dask_efficiency.report.runner import LAST_ANSWER, Runner, ScriptRun, _loop, numbered

if TYPE_CHECKING:
    from distributed import Client

    from dask_efficiency.report.model import EfficiencyReport

#: Run of no test.
_NONE = ScriptRun("", is_module=True)


class MeasuredTests(Runner):
    """Opens a report on each cluster of which there is a client when a test begins, or that a client in it reaches.

    Failures become notes, and never reach the test. There is one in a process, as it replaces methods of clients.
    """

    def __init__(self) -> None:
        super().__init__(_NONE)
        self.watch(signals=False)

    async def _connected(self, client: Client) -> None:
        if self._run is not _NONE:
            await super()._connected(client)

    def begin(self, name: str) -> None:
        """Open reports of this name, of the clients that are there and of those to come."""
        from distributed import Client

        self._run = ScriptRun(name, is_module=True)
        for client in [one for one in Client._instances if one.status == "running"]:
            self._ask(client, opening=True)

    def end(self, ended_by: str = "") -> tuple[list[EfficiencyReport], list[str]]:
        """Close the reports; returns those of clusters with work, and notes on what was not measured."""
        self._clients = [client for client, _ in self._open.values()]  # no other one opens a report in their place
        for client in list(self._clients):
            self._ask(client, opening=False)
        with_work = (replace(report, ended_by=ended_by) for report, _ in self._ended if report.cluster_seconds)
        reports = [numbered(report, number) for number, report in enumerate(with_work, 1)]
        notes, self._notes = self._notes, []
        self._ended, self._clients, self._open, self._run = [], [], {}, _NONE
        return reports, notes

    def _ask(self, client: Client, *, opening: bool) -> None:
        loop = _loop(client)
        if not loop.is_running():
            self._notes.append("not measured: its asynchronous client was there before the test, or after it")
            return
        step = self._connected(client) if opening else self._leaving(client)
        try:
            asyncio.run_coroutine_threadsafe(self._harmlessly(step), loop).result(LAST_ANSWER)
        except Exception as error:
            self._notes.append(f"not measured: {type(error).__name__}: {error}")
