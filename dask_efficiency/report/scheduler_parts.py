"""The report's parts of the scheduler's meter: results held only by clients, and the report saved at the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from distributed.core import Status

from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.parts import SchedulerPart
from dask_efficiency.plugin.scheduler import replies
from dask_efficiency.report.files import save
from dask_efficiency.report.replies import life_report, unpacked
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState


#: Results examined at each look, the oldest of each worker: clients keep old ones. A guess, to bound the cost.
MAX_RESULTS = 1_000
#: Nanoseconds between two looks. A guess.
LOOK_INTERVAL_NS = 1_000_000_000
#: Pairs of prefix and client that are counted. A guess, to bound memory.
MAX_PAIRS = 1_000
#: Largest pairs that a report gets. A guess: advice names one.
MAX_REPORTED = 10

SEVERAL = "several clients"
#: (prefix, client)
Pair = tuple[str, str]


class HeldResults(SchedulerPart):
    """Counts results held only by clients, once a second while any worker is paused or has spilled.

    A result is held if a client wants it and no task waits for it. Clients may still use it, so this explains
    ``paused`` and ``spill`` and is no time of its own.
    """

    def __init__(self, scheduler: Scheduler, now: Callable[[], int]) -> None:
        self._scheduler, self._now = scheduler, now
        self._due = self._looks = self._nbytes = 0
        self._held: Counter[Pair] = Counter()
        #: At the opening of each window: number of looks, and bytes of all results and of those held by pair.
        self._opened: dict[str, tuple[int, int, Counter[Pair]]] = {}

    @classmethod
    def of(cls, meter: Any) -> Self:  # noqa: D102
        return cls(meter.scheduler, meter.accounts.now)

    def round_over(self, unread: Mapping[str, Any]) -> None:  # noqa: D102
        if (at := self._now()) >= self._due:
            self._due = at + LOOK_INTERVAL_NS
            self.look()

    def look(self) -> None:
        """Examine the results on workers short of memory."""
        short = [ws for ws in self._scheduler.workers.values() if ws.status is Status.paused or _has_spilled(ws)]
        if not short:
            return
        self._looks += 1
        for ws in short[:MAX_RESULTS]:
            for ts in islice(ws.has_what, max(1, MAX_RESULTS // len(short))):
                nbytes = max(0, ts.nbytes)
                self._nbytes += nbytes
                if ts.who_wants and not ts.waiters:
                    client = fitting(next(iter(ts.who_wants)).client_key) if len(ts.who_wants) == 1 else SEVERAL
                    pair = prefix_of(ts.prefix.name), client
                    if pair in self._held or len(self._held) < MAX_PAIRS:
                        self._held[pair] += nbytes

    async def window_opens(self, window: str, wanted: Mapping[str, Any]) -> None:  # noqa: D102
        self._opened[window] = self._looks, self._nbytes, self._held.copy()

    async def window_closes(self, window: str, opened: int, reply: dict[str, Any], notes: list[str]) -> None:
        """Add the mean of the looks as rows of :class:`~dask_efficiency.report.values.HeldResult`."""
        if window not in self._opened or self._looks == self._opened[window][0]:
            return
        looks, nbytes, held = self._opened[window]
        looks, whole = self._looks - looks, self._nbytes - nbytes
        gained = (self._held - held).most_common(MAX_REPORTED)
        reply["held_results"] = [[*pair, nbytes / looks, nbytes / whole] for pair, nbytes in gained]

    def window_forgotten(self, window: str) -> None:  # noqa: D102
        self._opened.pop(window, None)


def _has_spilled(ws: WorkerState) -> bool:
    spilled = ws.metrics.get("spilled_bytes")
    return isinstance(spilled, Mapping) and bool(spilled.get("disk"))


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
