"""Exports: the scheduler's accounts on ``/metrics`` and on Dask's dashboard, if their libraries are installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from dask_efficiency.plugin.parts import SchedulerPart
from dask_efficiency.plugin.patches import METRICS, Replacements
from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts
from dask_efficiency.report.recipes import known_recipes
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from distributed import Scheduler


class Exports(SchedulerPart):
    """Part of the scheduler's meter that adds ``/metrics`` and the tab, and removes them again."""

    def __init__(self, scheduler: Scheduler, accounts: ClusterAccounts) -> None:
        self._scheduler = scheduler
        self._accounts = accounts
        self._replacements = Replacements()
        #: Steps that end the exports.
        self._undo: list[Callable[[], object]] = []

    @classmethod
    def of(cls, meter: Any) -> Self:  # noqa: D102
        return cls(meter.scheduler, meter.accounts)

    def start(self) -> None:
        """Export through every library that can be imported; log each missing one once."""
        self._start_prometheus()
        self._start_bokeh()
        if self._undo:
            # Findings look for recipes in all installed packages, once: not in the event loop, at the first scrape.
            Thread(target=known_recipes, name="dask_efficiency-recipes", daemon=True).start()

    def stop(self) -> None:
        """Export nothing more."""
        while self._undo:
            self._undo.pop()()

    def _start_prometheus(self) -> None:
        try:
            from dask_efficiency.live.exposition import text, with_ours
            from dask_efficiency.live.prometheus import COLLECTOR
        except ImportError as error:
            logger.info("dask_efficiency exports no Prometheus metrics: %s", error)
            return
        self._replacements.put(
            METRICS,
            self._scheduler.http_application,
            lambda handler: with_ours(handler, lambda: COLLECTOR.written(text), COLLECTOR.left_out),
        )
        COLLECTOR.add(self._accounts)
        self._undo += [partial(COLLECTOR.remove, self._accounts), self._replacements.put_back]

    def _start_bokeh(self) -> None:
        if not self._scheduler.http_application.applications:
            # Not even imported: that would block the scheduler for a second.
            logger.info("dask_efficiency adds no tab to the dashboard: the scheduler serves none")
            return
        try:
            from dask_efficiency.live import bokeh
        except ImportError as error:
            logger.info("dask_efficiency adds no tab to the dashboard: %s", error)
            return
        try:
            bokeh.show(self._scheduler, self._accounts)
        except bokeh.NoDashboardError as error:
            logger.info("dask_efficiency adds no tab to the dashboard: %s", error)
        except Exception:
            # The dashboard is private to Dask: metering goes on if it has changed.
            logger.exception("dask_efficiency could not add its tab to the dashboard")
        else:
            self._undo.append(partial(bokeh.hide, self._scheduler, self._accounts))
