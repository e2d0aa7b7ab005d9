"""StragglerWatch: finds workers that take longer than their peers for the same work, while it goes on."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.gpu import KernelTotals
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.straggler.comparison import IntervalComparison
from dask_efficiency.straggler.diagnosis import Findings, Group, WindowEnd, findings_of
from dask_efficiency.straggler.history import History
from dask_efficiency.straggler.live_score import MIN_RESIDUAL, LiveScoring
from dask_efficiency.straggler.signals import DURATION
from dask_efficiency.straggler.task_rates import TaskRates

#: Numbers that a poll compares, or one piece more: 3 ms; and what each piece costs besides its numbers, because NumPy
#: calls take some time each. ``benchmarks.stragglers_cost`` measures it.
MAX_A_POLL = 4_000
PIECE_COST = 400

#: Past findings kept.
MAX_PAST = 200


@dataclass(frozen=True, slots=True)
class StragglerChange:
    """New stragglers of an interval, and workers that are stragglers no more."""

    found: tuple[SlowWorker, ...] = ()
    cleared: tuple[SlowWorker, ...] = ()


@dataclass(frozen=True, slots=True)
class PastFinding:
    """A finding that has ended, and when, in seconds since the epoch."""

    finding: SlowWorker
    until: float


class StragglerWatch:
    """Finds stragglers from workers' heartbeats, interval by interval.

    A worker is a straggler when in its last 20 tasks and 7 intervals, or in the last four minutes, it was further above
    its peers than chance brings any of them, by a tenth at least, in four of five intervals. Where only the duration of
    its tasks shows it, it must be further than the tasks of a prefix are from each other. Only workers of one group are
    compared. With two of them, or if more than half become slow, a worker's own history decides, if there is one.

    Parameters
    ----------
    window_seconds
        Length of the window it looks at.
    """

    def __init__(self, *, window_seconds: float = 240.0) -> None:
        self._window_ns = round(window_seconds * 1e9)
        self._comparison = IntervalComparison()
        self._history = History(self._comparison.capacity, self._window_ns)
        self._scoring = LiveScoring(self._window_ns)
        self._hosts: dict[str, str] = {}
        self._groups: dict[str, Hashable] = {}
        #: End of the last interval.
        self._last: int | None = None
        #: The comparison that goes on since an interval ended, and rows that got another worker since then.
        self._work: Generator[int, None, StragglerChange] | None = None
        self._newcomers: list[int] = []
        self._flags: Findings = {}
        #: Findings that have ended, oldest first.
        self.past: deque[PastFinding] = deque(maxlen=MAX_PAST)

    @property
    def findings(self) -> tuple[SlowWorker, ...]:
        """Present stragglers, the most certain first."""
        return tuple(sorted(self._flags.values(), key=lambda finding: -finding.score))

    @property
    def comparing(self) -> bool:
        """True while the next poll will go on with a comparison."""
        return self._work is not None

    @property
    def last(self) -> int | None:
        """End of the last interval, or start of the first one, in monotonic nanoseconds."""
        return self._last

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes: 23 kB a worker."""
        return self._comparison.nbytes + self._history.nbytes

    def findings_between(self, start: float, stop: float) -> tuple[SlowWorker, ...]:
        """Present and past stragglers that were slow in a time interval, the most certain first."""
        past = (past.finding for past in self.past if past.until >= start and past.finding.since <= stop)
        now = (finding for finding in self._flags.values() if finding.since <= stop)
        return tuple(sorted((*past, *now), key=lambda finding: -finding.score))

    # -- workers -----------------------------------------------------------------------------

    def joined(self, worker: str, *, host: str, group: Hashable, at: int) -> None:
        """Add a worker; ``group`` is equal for those that can be compared, with as many threads."""
        self._comparison.joined(worker, group, at=at)
        self._hosts[worker], self._groups[worker] = host, group
        self._history.grow(self._comparison.capacity)
        row = self._comparison.row_of(worker)
        self._history.reset(row)
        if self._work is not None:
            self._newcomers.append(row)

    def left(self, worker: str, *, now: float) -> None:
        """Remove a worker; ``now`` in seconds since the epoch."""
        self._comparison.left(worker)
        self._hosts.pop(worker, None)
        self._groups.pop(worker, None)
        self._scoring.keep(self._groups.values())
        finding = self._flags.pop((worker, ""), None)
        if finding is not None:
            self.past.append(PastFinding(finding, now))

    def receive(
        self,
        worker: str,
        rates: TaskRates,
        *,
        at: int,
        paused: float = 0.0,
        spilling: float = 0.0,
        held: float = math.nan,
        lag: float = math.nan,
        kernels: Sequence[KernelTotals] = (),
    ) -> None:
        """Take in a heartbeat; that of a worker that has left is ignored, as it may come late.

        Parameters
        ----------
        worker, rates
            The worker, and the totals that its heartbeat carries.
        at
            Monotonic nanoseconds.
        paused, spilling
            Seconds so far for which its threads were paused, and spilling.
        held
            Bytes of the results that it holds; NaN if unknown.
        lag
            Seconds between two turns of its event loop; NaN if unknown.
        kernels
            Totals of its GPUs' kernels, largest first.
        """
        self._comparison.receive(
            worker, rates, at=at, paused=paused, spilling=spilling, held=held, lag=lag, kernels=kernels
        )

    # -- judging -----------------------------------------------------------------------------

    def poll(
        self, *, at: int, now: float, interval_seconds: float, in_time: Callable[[], bool] = lambda: True
    ) -> StragglerChange:
        """End the interval if it has lasted long enough, and judge.

        Parameters
        ----------
        at
            Monotonic nanoseconds.
        now
            Seconds since the epoch.
        interval_seconds
            At least two heartbeats, so that every worker has reported.
        in_time
            Called after each piece of a comparison; False leaves the rest to the next poll.
        """
        if self._last is None:
            self._last = at
        if self._work is None:
            if at - self._last < interval_seconds * 1e9 or not self._hosts:
                return StragglerChange()
            self._newcomers.clear()
            self._work = self._compare_and_judge(self._last, WindowEnd(at, now, self._window_ns))
        done = 0
        try:
            while not done or (done < MAX_A_POLL and in_time()):
                done += PIECE_COST + next(self._work)
        except StopIteration as ended:
            self._work = None
            change: StragglerChange = ended.value
            return change
        return StragglerChange()

    def _compare_and_judge(self, begin: int, end: WindowEnd) -> Generator[int, None, StragglerChange]:
        """Compare and judge after an interval, piece by piece; workers may come and go in between."""
        interval = yield from self._comparison.pieces(at=end.at, learn=self._fit_to_learn_from())
        self._history.remember(interval, begin=begin, end=end.at, newcomers=self._newcomers)
        self._newcomers.clear()
        self._last = end.at
        found: Findings = {}
        for key, group in self._by_group().items():
            scores = yield from self._scoring.score(
                self._history, key, group.rows, kernels=self._comparison.sees_kernels, at=end.at
            )
            if scores is None:
                continue
            there = np.array([self._groups.get(worker) == key for worker in group.workers])
            if there.any():
                found.update(findings_of(group.only(there), scores.only(there), self._history, self._flags, end))
        return self._changed(found, end.now)

    def _by_group(self) -> dict[Hashable, Group]:
        workers_of: dict[Hashable, list[str]] = {}
        for worker, group in self._groups.items():
            workers_of.setdefault(group, []).append(worker)
        groups = {}
        for group, workers in workers_of.items():
            workers.sort(key=self._comparison.row_of)
            rows = np.array([self._comparison.row_of(worker) for worker in workers])
            groups[group] = Group(workers, [self._hosts[worker] for worker in workers], rows)
        return groups

    def _fit_to_learn_from(self) -> NDArray[np.bool_]:
        """Mark the rows of workers that seem healthy: a slow one must not become its own baseline."""
        fit = np.ones(self._comparison.capacity, bool)
        for place in self._history.newest(1):
            with np.errstate(invalid="ignore"):
                fit &= ~(self._history.residual[place, DURATION] > MIN_RESIDUAL[DURATION])
        for worker, _ in self._flags:
            if worker in self._groups:
                fit[self._comparison.row_of(worker)] = False
        return fit

    def _changed(self, found: Findings, now: float) -> StragglerChange:
        known = self._flags
        self._flags = found
        cleared = tuple(finding for key, finding in known.items() if key not in found)
        self.past.extend(PastFinding(finding, now) for finding in cleared)
        return StragglerChange(tuple(finding for key, finding in found.items() if key not in known), cleared)
