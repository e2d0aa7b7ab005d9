"""FleetWatch: pulls metrics, judges and reports, round by round, and goes on after an error; and retires workers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

import numpy as np

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.dask_source import RETIRE_SECONDS, Asking, SchedulerSource, retire
from dask_efficiency.fleet.outliers.departures import MIN_PAST_SECONDS
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource
from dask_efficiency.fleet.prometheus.receivers import NotReceivedError, OwnMetrics
from dask_efficiency.fleet.rounds.past import Habits, extended, missing_samples, parted
from dask_efficiency.fleet.rounds.rounds import Event, FindingChange, Rounds, as_webhook
from dask_efficiency.fleet.settings import WatchSettings
from dask_efficiency.straggler.peers import MIN_PEERS
from dask_efficiency.straggler.retirements import Retirements

#: Seconds of samples pulled again in the next round, as some reach Prometheus late: four scrapes of 15 s.
LATE_SECONDS = 60.0
#: Events kept for a receiver that was not reached; of more, the oldest are dropped.
MAX_UNTOLD = 1_000

#: Finds machines of a window that are unlike their peers; the second series, if any, is from just before it.
Detector = Callable[[MetricSeries, MetricSeries | None], list[SlowWorker]]


#: Sources of a watch's metrics.
Source = SchedulerSource | PrometheusSource


@dataclass(slots=True)
class FleetWatch:
    """Watches a fleet: shows each event once, and warns of errors by a line; its clock, in seconds, times rounds."""

    source: Source
    detector: Detector
    settings: WatchSettings
    show: Callable[[Event], None]
    warn: Callable[[str], None]
    clock: Callable[[], float]
    metrics: OwnMetrics | None = None
    rounds: Rounds = field(default_factory=Rounds)
    #: Window and findings of the last round; or the reason why nobody could be found.
    window: MetricSeries | None = field(default=None, init=False)
    found: tuple[SlowWorker, ...] = field(default=(), init=False)
    unjudged: str = field(default="", init=False)
    #: Machines of the window that were in the last pull.
    present: tuple[str, ...] = field(default=(), init=False)
    _habits: Habits = field(default_factory=Habits, init=False)
    _known: MetricSeries | None = field(default=None, init=False)
    _pending: list[deque[Event]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._pending = [deque(maxlen=MAX_UNTOLD) for _ in self.settings.receivers]

    def round(self, at: float) -> list[Event]:
        """Judge the window that ends at an instant, and report what is new; OSError or ValueError without an answer."""
        began = self.clock()
        try:
            self._known = self._pulled(at)
        except (OSError, ValueError):
            if self.metrics is not None:
                self.metrics.failed(pull=self.clock() - began)
            self._send([])
            raise
        pulled = self.clock()
        past, self.window = parted(self._known, window_start=at - self.settings.window)
        self.found = tuple(self.detector(self.window, self._habits.applied(past)) if self.window.workers else ())
        self.unjudged = unjudged(self.window, past, continuity_seconds=self.settings.continuity)
        events = self.rounds.judged(self.found, {*self.window.workers, *self.window.hosts}, at=at)
        ongoing = self.rounds.ongoing
        self._habits.keep(ongoing, past)
        if self.metrics is not None:
            machines, missing = len(self.window.workers), missing_samples(self.window)
            took = {"pull": pulled - began, "judge": self.clock() - pulled}
            self.metrics.judged(ongoing, at=at, machines=machines, missing=missing, **took)
        self._send(events)  # before `show`, which may raise BrokenPipeError
        for event in events:
            self.show(event)
        return events

    def _pulled(self, at: float) -> MetricSeries:
        """Series up to an instant; only the part that is not known yet is pulled."""
        start = at - self.settings.window - self.settings.history
        if self._known is None:
            first = self.source.pull(start=start, stop=at)
            self.source.check(first)
            self.present = first.workers
            return first
        end = self._known.start + self._known.values.shape[2] * self._known.step_seconds
        latest = self.source.pull(start=max(start, end - LATE_SECONDS), stop=at)
        self.present = latest.workers
        return extended(self._known, latest, start=start)

    def _send(self, events: list[Event]) -> None:
        for pending in self._pending:
            pending.extend(events)
        for receiver, pending in zip(self.settings.receivers, self._pending, strict=True):
            while pending:
                # The first events, as long as all of them begin a finding, or all of them end one.
                _, alike = next(groupby(pending, lambda event: event.change is FindingChange.BEGINS))
                body = list(alike)
                try:
                    receiver.tell(as_webhook(body, source=self.source.name))
                except NotReceivedError as error:
                    self.warn(f"{error}; tried again in the next round")
                    if self.metrics is not None:
                        self.metrics.not_reached()
                    break
                for _ in body:
                    pending.popleft()


@dataclass(frozen=True, slots=True)
class Retiring:
    """Retires workers that were found, within a limit."""

    asking: Asking
    limit: Retirements
    #: Takes a line for people.
    say: Callable[[str], None]

    def __call__(self, watch: FleetWatch, at: float) -> None:
        """Retire one of the workers that a watch found in its last round, if the limit allows it now."""
        wanted = [finding.worker for finding in sorted(watch.found, key=lambda one: -one.score) if finding.worker]
        name, why_not = self.limit.chosen(wanted, watch.present, at=at)
        if name is None:
            if why_not:
                self.say(f"{', '.join(wanted)[:200]} not retired: {why_not}")
            return
        there = True
        try:
            there = self.asking(partial(retire, name=name))
        except TimeoutError:
            self.say(f"{name[:200]} is not yet retired after {RETIRE_SECONDS:g} s")
        else:
            self.say(f"{name[:200]} {'is retired' if there else 'was not retired: the scheduler has no such worker'}")
        finally:
            if there:  # also after a timeout: the scheduler goes on with it
                self.limit.retired(name, at=at)


def instants(first: float, last: float, *, every_seconds: float) -> Iterator[float]:
    """Times of rounds in a replay of the past."""
    number = 0
    while (at := first + number * every_seconds) <= last:
        yield at
        number += 1


def unjudged(window: MetricSeries, past: MetricSeries | None, *, continuity_seconds: float) -> str:
    """Reason why nobody in a window could be found, whoever is at fault; empty if somebody could."""
    if not window.workers:
        return "nobody reported anything"
    alike = max(Counter(window.groups).values())
    if alike < MIN_PEERS:
        return f"{len(window.workers)} reported, of which {alike} can be compared; expected {MIN_PEERS} at least"
    expected = continuity_seconds + (0 if past is not None else MIN_PAST_SECONDS)
    known = int(np.isfinite(window.values).any(axis=(0, 1)).sum()) * window.step_seconds
    if known < expected:
        return f"what was reported covers {known:.0f} s; expected {expected:.0f} s at least"
    return ""
