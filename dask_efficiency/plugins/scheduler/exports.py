"""Exports: where the scheduler shows its accounts, as far as the libraries for it are there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_efficiency.plugins.scheduler.meter import ClusterMeter

logger = logging.getLogger("dask_efficiency")


class Exports:
    """Puts a meter on ``/metrics`` and on Dask's dashboard, and takes it off again."""

    def __init__(self, meter: ClusterMeter) -> None:
        self._meter = meter
        self._prometheus = False
        self._bokeh = False

    def start(self) -> None:
        """Export through every library that can be imported; a missing one is said once."""
        self._start_prometheus()
        self._start_bokeh()

    def stop(self) -> None:
        """Export nothing any more."""
        if self._prometheus:
            from dask_efficiency.adapters.prometheus import COLLECTOR

            COLLECTOR.remove(self._meter)
            self._prometheus = False
        if self._bokeh:
            from dask_efficiency.adapters import bokeh

            bokeh.hide(self._meter.scheduler, self._meter)
            self._bokeh = False

    def _start_prometheus(self) -> None:
        try:
            from dask_efficiency.adapters.prometheus import COLLECTOR
        except ImportError as error:
            logger.info("dask_efficiency exports no Prometheus metrics: %s", error)
            return
        COLLECTOR.add(self._meter)
        self._prometheus = True

    def _start_bokeh(self) -> None:
        scheduler = self._meter.scheduler
        if not scheduler.http_application.applications:
            # Not even imported: that would hold the scheduler up for a second.
            logger.info("dask_efficiency adds no tab to the dashboard: the scheduler serves none")
            return
        try:
            from dask_efficiency.adapters import bokeh
        except ImportError as error:
            logger.info("dask_efficiency adds no tab to the dashboard: %s", error)
            return
        try:
            bokeh.show(scheduler, self._meter)
        except bokeh.NoDashboardError as error:
            logger.info("dask_efficiency adds no tab to the dashboard: %s", error)
        except Exception:
            # What it adds to is private to Dask: that it broke is no reason to measure nothing.
            logger.exception("dask_efficiency could not add its tab to the dashboard")
        else:
            self._bokeh = True
