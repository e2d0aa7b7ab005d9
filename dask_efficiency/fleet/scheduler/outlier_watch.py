"""OutlierWatch: looks once a minute for workers whose metrics stay away from their peers', off the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.outliers import find_outliers
from dask_efficiency.fleet.rounds.alarm_bound import AlarmBound
from dask_efficiency.fleet.rounds.exclusions import Exclusion, judged
from dask_efficiency.fleet.rounds.past import parted
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.show.log import logger
from dask_efficiency.straggler.online import MAX_PAST, PastFinding

#: Seconds between the starts of two looks, and length of the window that they judge. Guesses.
EVERY_SECONDS = 60.0
WINDOW_SECONDS = 900.0

#: Outliers; the series before them, which stays everybody's past for as long as there are outliers; what was left out
#: of the look; and the number of workers.
Found = tuple[list[SlowWorker], MetricSeries | None, Exclusion | None, int]


class OutlierWatch:
    """Adds to the watch for stragglers, which compares tasks, a comparison of metrics, which needs none.

    numpy releases the GIL for most of a look, so that the event loop goes on. A look that fails on a worker or a metric
    goes on without it, or else changes nothing; the first failure is logged, and the next look begins as usual.
    Workers that leave their past often are named at a bounded rate, as :class:`AlarmBound` says.
    Series returns a reader of the workers' metrics of so many seconds, for any thread.
    """

    def __init__(self, series: Callable[[float], Callable[[], MetricSeries]], enabled: Callable[[], bool]) -> None:
        self._series = series
        self._enabled = enabled
        self._look: asyncio.Future[Found] | None = None
        self._due = 0
        self._before: MetricSeries | None = None
        #: Outliers of the last look, by the workers' names, the most certain first.
        self.findings: tuple[SlowWorker, ...] = ()
        #: Workers that left since the look began.
        self._gone: set[str] = set()
        #: Findings that have ended, oldest first.
        self.past: deque[PastFinding] = deque(maxlen=MAX_PAST)
        self._bound = AlarmBound()
        self._failed = False
        self._guard = Guard("the watch for outliers", "dask_efficiency looks for outliers no more")

    def findings_between(self, start: float, stop: float) -> tuple[SlowWorker, ...]:
        """Present and past outliers of a time interval, in seconds since the epoch."""
        past = (past.finding for past in self.past if past.until >= start and past.finding.since <= stop)
        return (*(finding for finding in self.findings if finding.since <= stop), *past)

    def left(self, worker: str, *, now: float) -> None:
        """Remove a worker of this name."""
        if self._look is not None:
            self._gone.add(worker)
        self._take([finding for finding in self.findings if finding.worker != worker], now)

    def poll(self, *, at: int, now: float) -> None:
        """Start a look when it is due, or take the result of one; at monotonic nanoseconds, and now by the epoch."""
        self._guard(self._poll, at, now)

    def _poll(self, at: int, now: float) -> None:
        if self._look is not None:
            if not self._look.done():
                return
            look, self._look = self._look, None
            try:
                found, self._before, without, workers = look.result()
            except Exception as error:  # begins and ends nothing
                self._note("dask_efficiency: a look for outliers failed", error)
                return
            if without is not None:
                self._note(f"dask_efficiency: the watch for outliers {without}", without.why)
            there = [finding for finding in found if finding.worker not in self._gone]
            self._take(self._admitted(there, workers, now), now)
        elif not self._enabled():
            self._before = None
            self._take([], now)
        elif at >= self._due:
            self._due = at + round(EVERY_SECONDS * 1e9)
            self._gone.clear()
            read, before = self._series(WINDOW_SECONDS), self._before
            self._look = asyncio.get_running_loop().run_in_executor(None, lambda: _found(read(), before))

    def _admitted(self, found: list[SlowWorker], workers: int, now: float) -> list[SlowWorker]:
        """Findings that may be named; says so when there come to be too many of them, or no more."""
        bounded, ongoing = self._bound.since is not None, {finding.subject for finding in self.findings}
        admitted = self._bound.admitted(found, ongoing, machines=workers, at=now)
        if (self._bound.since is not None) != bounded:
            logger.warning("dask_efficiency: the watch for outliers: %s", self._bound.sentence(workers))
        return admitted

    def _note(self, text: str, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            logger.error(text, exc_info=error)

    def _take(self, found: list[SlowWorker], now: float) -> None:
        there = {(finding.worker, finding.host) for finding in found}
        over = (finding for finding in self.findings if (finding.worker, finding.host) not in there)
        self.past.extend(PastFinding(finding, now) for finding in over)
        self.findings = tuple(found)


def _found(series: MetricSeries, before: MetricSeries | None) -> Found:
    def detector(window: MetricSeries, past: MetricSeries | None) -> list[SlowWorker]:
        return find_outliers(window, history=past, same_work=False)

    found, without = judged(detector, series, before)
    if not found:
        return found, None, without, len(series.workers)
    if before is None:
        before, _ = parted(series, window_start=min(finding.since for finding in found))
    return found, before, without, len(series.workers)
