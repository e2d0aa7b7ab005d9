"""The report's part of the scheduler's meter: the report saved at the end."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from dask_efficiency.plugin.parts import SchedulerPart
from dask_efficiency.plugin.scheduler import replies
from dask_efficiency.report.files import save
from dask_efficiency.report.replies import life_report, unpacked
from dask_efficiency.show.log import logger


class SaveTo(SchedulerPart):
    """Writes the report of the cluster's life where the option ``save-to`` says."""

    def __init__(self, meter: Any) -> None:
        self._meter = meter

    @classmethod
    def of(cls, meter: Any) -> Self:  # noqa: D102
        return cls(meter)

    async def closing(self) -> None:
        """Write the report; failures are logged."""
        path, accounts = self._meter.options.save_to, self._meter.accounts
        if path is None:
            return
        try:
            await self._meter.ask_snapshots()
            accounts.cluster.close_departed(at=accounts.now(), grace=0)
            accounts.follow()
            reply = await replies.packed(replies.of_life(accounts))
            await asyncio.to_thread(lambda: save(life_report(unpacked(reply)), path))
            logger.info("dask_efficiency wrote the cluster's report to %s", path)
        except Exception:
            logger.exception("dask_efficiency could not write the cluster's report to %s", path)
