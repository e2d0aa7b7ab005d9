"""``dask scheduler --preload dask_efficiency``: the plugin without a line of user code."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler

from dask_efficiency.plugin.scheduler.plugin import EfficiencyPlugin
from dask_efficiency.show.log import logger


def dask_setup(server: Any) -> None:
    """Add the plugin to a scheduler that is starting; Dask calls its ``start`` afterwards."""
    if not isinstance(server, Scheduler):
        logger.warning(
            "dask_efficiency is preloaded on a %s; it belongs on the scheduler, which sends the workers their part",
            type(server).__name__,
        )
        return
    if EfficiencyPlugin.name not in server.plugins:
        server.add_plugin(EfficiencyPlugin(), name=EfficiencyPlugin.name)
