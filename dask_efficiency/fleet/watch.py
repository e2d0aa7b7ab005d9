"""FleetWatch: pulls metrics, judges and reports, round by round, and goes on after any error; and retires workers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.dask_source import Asking, SchedulerSource, retire
from dask_efficiency.fleet.outliers.block_signals import block_samples
from dask_efficiency.fleet.outliers.departures import least_past_seconds
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource
from dask_efficiency.fleet.prometheus.receivers import Command, NotReceivedError, OwnMetrics, Webhook
from dask_efficiency.fleet.rounds.alarm_bound import AlarmBound
from dask_efficiency.fleet.rounds.exclusions import Detector, Exclusion, failure, judged
from dask_efficiency.fleet.rounds.past import Habits, extended, missing_samples, parted
from dask_efficiency.fleet.rounds.rounds import Event, FindingChange, Rounds, as_webhook
from dask_efficiency.fleet.settings import WatchSettings
from dask_efficiency.straggler.peers import MIN_PEERS
from dask_efficiency.straggler.retirements import RETIRE_SECONDS, Retirements

#: Seconds of samples pulled again in the next round, as some reach Prometheus late: four scrapes of 15 s.
LATE_SECONDS = 60.0
#: Events kept for a receiver that was not reached, of which the oldest are dropped; and errors that are remembered, so
#: that each is told once, beyond which nobody is told. Bounds memory.
MAX_KEPT = 1_000

#: Most windows of the past that are judged in the first round. Bounds time.
MAX_REHEARSED = 8

#: Sources of a watch's metrics.
Source = SchedulerSource | PrometheusSource


@dataclass(slots=True)
class FleetWatch:
    """Watches a fleet: shows each event once, and warns of errors by a line; its clock, in seconds, times rounds.

    Machines, metrics and receivers on which a round fails are left out of it; each error is told once, and counted.
    """

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
    #: Bound on alarms; it is tried on the past in the first round.
    bound: AlarmBound = field(default_factory=AlarmBound)
    _rehearsed: bool = field(default=False, init=False)
    _bounded: bool = field(default=False, init=False)
    _habits: Habits = field(default_factory=Habits, init=False)
    _known: MetricSeries | None = field(default=None, init=False)
    _pending: list[deque[Event]] = field(default_factory=list, init=False)
    #: Whether the source was checked: later, single metrics and machines may fail.
    _checked: bool = field(default=False, init=False)
    #: Errors that were told.
    _told: set[tuple[str, str]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._pending = [deque(maxlen=MAX_KEPT) for _ in self.settings.receivers]

    def round(self, at: float) -> list[Event]:
        """Judge the window that ends at an instant, and report what is new.

        Raises OSError or ValueError without an answer. After any other error the round has no verdict, and
        :attr:`unjudged` says why.
        """
        began = self.clock()
        pulled: float | None = None
        try:
            self._known = self._pulled(at)
            pulled = self.clock()
            events = self._judged(self._known, at, pull=pulled - began)
        except Exception as error:
            if self.metrics is not None:
                self.metrics.failed(pull=(pulled or self.clock()) - began)
            self._send([])
            if pulled is None and isinstance(error, OSError | ValueError):
                raise
            if pulled is None:  # what is known may be why: all is pulled again
                self._known = None
            self.found = ()
            self.unjudged = f"the round failed: {failure(error)}"
            return []
        self._send(events)  # before `show`, which may raise BrokenPipeError
        for event in events:
            try:
                self.show(event)
            except OSError:
                raise
            except Exception as error:
                self._leave_out(Exclusion("event", (event.finding.subject,), error))
        return events

    def _judged(self, known: MetricSeries, at: float, *, pull: float) -> list[Event]:
        began = self.clock()
        past, window = parted(known, window_start=at - self.settings.window)
        self.window, self.found = window, ()
        if window.workers:
            if not self._rehearsed:
                self._rehearse(known, at)
            found, without = judged(self.detector, window, self._habits.applied(past))
            if without is not None:
                self._leave_out(without)
            self.found = tuple(self._admitted(found, machines=len(window.workers), at=at))
        self.unjudged = unjudged(window, past, continuity_seconds=self.settings.continuity)
        events = self.rounds.judged(self.found, {*window.workers, *window.hosts}, at=at)
        ongoing = self.rounds.ongoing
        self._habits.keep(ongoing, known)
        if self.metrics is not None:
            machines, missing = len(window.workers), missing_samples(window)
            judge = self.clock() - began
            self.metrics.bounded(self.bound.since is not None)
            self.metrics.judged(ongoing, at=at, machines=machines, missing=missing, pull=pull, judge=judge)
        return events

    def _rehearse(self, known: MetricSeries, at: float) -> None:
        """Judge the windows of the past, of which nobody hears, so that too many alarms are known before the first."""
        self._rehearsed = True
        length = self.settings.window
        for number in reversed(range(1, MAX_REHEARSED + 1)):
            then = at - number * self.settings.every
            samples = round((then - known.start) / known.step_seconds)
            if samples * known.step_seconds < 2 * length:
                continue
            earlier = replace(known, values=known.values[:, :, :samples])
            past, window = parted(earlier, window_start=then - length)
            if window.workers:
                found, _ = judged(self.detector, window, past)
                self.bound.admitted(found, (), machines=len(window.workers), at=then)

    def _admitted(self, found: list[SlowWorker], *, machines: int, at: float) -> list[SlowWorker]:
        """Findings that may be named; it is told once when most may not, and when all may again."""
        ongoing = {finding.subject for finding in self.rounds.ongoing}
        admitted = self.bound.admitted(found, ongoing, machines=machines, at=at)
        if (self.bound.since is not None) != self._bounded:
            self._bounded = self.bound.since is not None
            self.warn(self.bound.sentence(machines))
        return admitted

    def _leave_out(self, left: Exclusion) -> None:
        """Count what a round goes on without, and tell of it once."""
        if self.metrics is not None:
            self.metrics.left_out(left.about, len(left.names))
        key = ",".join(left.names), type(left.why).__name__
        if key not in self._told and len(self._told) < MAX_KEPT:
            self._told.add(key)
            self.warn(str(left))

    def _pulled(self, at: float) -> MetricSeries:
        """Series up to an instant; only the part that is not known yet is pulled."""
        start = at - self.settings.window - self.settings.history
        leave_out = self._leave_out if self._checked else None
        if self._known is None:
            first = self.source.pull(start=start, stop=at, leave_out=leave_out)
            if not self._checked:
                self.source.check(first)
            self._checked, self.present = True, first.workers
            return first
        end = self._known.start + self._known.values.shape[2] * self._known.step_seconds
        latest = self.source.pull(start=max(start, end - LATE_SECONDS), stop=at, leave_out=leave_out)
        self.present = latest.workers
        return extended(self._known, latest, start=start)

    def _send(self, events: list[Event]) -> None:
        for pending in self._pending:
            pending.extend(events)
        for receiver, pending in zip(self.settings.receivers, self._pending, strict=True):
            while pending:
                # The first events, as long as all of them begin a finding, or all of them end one.
                _, alike = next(groupby(pending, lambda event: event.change is FindingChange.BEGINS))
                some = list(alike)
                try:
                    body = as_webhook(some, source=self.source.name)
                except Exception as error:  # it would fail in each round
                    self._leave_out(Exclusion("event", tuple(event.finding.subject for event in some), error))
                else:
                    if not self._reached(receiver, body):
                        break
                for _ in some:
                    pending.popleft()

    def _reached(self, receiver: Webhook | Command, body: dict[str, Any]) -> bool:
        try:
            receiver.tell(body)
        except Exception as error:
            why = str(error) if isinstance(error, NotReceivedError) else failure(error)
            self.warn(f"{why}; tried again in the next round")
            if self.metrics is not None:
                self.metrics.not_reached()
            return False
        return True


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
    least = 0.0 if past is not None else least_past_seconds(block_samples(window) * window.step_seconds)
    expected = continuity_seconds + least
    known = int(np.isfinite(window.values).any(axis=(0, 1)).sum()) * window.step_seconds
    if known < expected:
        return f"what was reported covers {known:.0f} s; expected {expected:.0f} s at least"
    return ""
