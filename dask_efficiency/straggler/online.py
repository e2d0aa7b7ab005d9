"""StragglerWatch: finds workers that take longer than their peers for the same work, while it goes on."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.gpu import KernelTotals
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.tables import Bool
from dask_efficiency.straggler.diagnosis import Findings, Group, findings_of
from dask_efficiency.straggler.history import History, Interval
from dask_efficiency.straggler.kernels import KernelComparison
from dask_efficiency.straggler.live_score import MIN_RESIDUAL, LiveScoring
from dask_efficiency.straggler.prefixes import PrefixComparison
from dask_efficiency.straggler.processes import ProcessComparison
from dask_efficiency.straggler.signals import DURATION, GPU_KERNEL
from dask_efficiency.straggler.task_rates import PROCESS_SUMS, TaskRates
from dask_efficiency.straggler.transfers import TransferComparison

#: Numbers that a poll compares, or one piece more: 3 ms; and what each piece costs besides its numbers, because NumPy
#: calls take some time each. ``benchmarks.stragglers_cost`` measures it.
MAX_A_POLL = 4_000
PIECE_COST = 400
#: Past findings kept. Bounds memory.
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


@dataclass(frozen=True, slots=True)
class _Member:
    """A present worker; its row in all arrays, and what is equal for workers that can be compared."""

    row: int
    host: str
    group: Hashable


class StragglerWatch:
    """Finds stragglers from workers' heartbeats, interval by interval.

    A worker is a straggler when in its last 20 tasks and 7 intervals, or in the last four minutes, it was further above
    its peers than chance brings any of them, by a tenth at least, in four of five intervals. Where only the duration of
    its tasks shows it, it must be further than the tasks of a prefix are from each other. Only workers of one group are
    compared. With two of them, or if more than half become slow, a worker's own history decides, if there is one.

    Memory is bounded by the number of workers present.
    """

    def __init__(self, *, window_seconds: float = 240.0) -> None:
        self._members: dict[str, _Member] = {}
        #: Workers there is room for; it doubles when it is full.
        self._rows = 1
        self._free = [0]
        self._prefixes = PrefixComparison(self._rows)
        self._processes = ProcessComparison(self._rows)
        self._kernels = KernelComparison(self._rows)
        self._transfers = TransferComparison()
        self._history = History(self._rows, round(window_seconds * 1e9))
        self._by_row = (self._prefixes, self._processes, self._kernels, self._history)
        self._scoring = LiveScoring()
        #: End of the last interval, or start of the first one, in monotonic nanoseconds.
        self.last: int | None = None
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
    def nbytes(self) -> int:
        """Size of the arrays in bytes: 23 kB a worker."""
        return sum(arrays.nbytes for arrays in self._by_row)

    def findings_between(self, start: float, stop: float) -> tuple[SlowWorker, ...]:
        """Present and past stragglers that were slow in a time interval, the most certain first."""
        past = (past.finding for past in self.past if past.until >= start and past.finding.since <= stop)
        now = (finding for finding in self._flags.values() if finding.since <= stop)
        return tuple(sorted((*past, *now), key=lambda finding: -finding.score))

    # -- workers -----------------------------------------------------------------------------

    def joined(self, worker: str, *, host: str, group: Hashable, at: int) -> None:
        """Add a worker; ``group`` is equal for those that can be compared, with as many threads."""
        self._remove(worker)
        if not self._free:
            self._free = list(range(self._rows, 2 * self._rows))
            self._rows *= 2
            for arrays in self._by_row:
                arrays.grow(self._rows)
        row = self._free.pop()
        self._members[worker] = _Member(row, host, group)
        for arrays in self._by_row:
            arrays.reset(row)
        self._transfers.joined(worker, row)
        self._prefixes.begin_group(group, at=at)
        if self._work is not None:
            self._newcomers.append(row)

    def _remove(self, worker: str) -> None:
        self._transfers.left(worker)
        member = self._members.pop(worker, None)
        if member is not None:
            self._free.append(member.row)
            if all(other.group != member.group for other in self._members.values()):
                self._prefixes.end_group(member.group)

    def left(self, worker: str, *, now: float) -> None:
        """Remove a worker; ``now`` in seconds since the epoch."""
        self._remove(worker)
        self._scoring.keep(self._groups())
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
        """Take in a heartbeat of these monotonic nanoseconds; that of a worker that has left is ignored.

        Threads were paused and spilling for seconds, results held are bytes, the event loop's lag is in seconds.
        """
        member = self._members.get(worker)
        if member is None:
            return
        self._prefixes.receive(member.row, rates, at=at)
        self._transfers.receive(worker, rates)
        self._processes.receive(member.row, rates.process, at, paused, spilling, held, lag)
        if kernels:
            self._kernels.receive(member.row, kernels, at=at)

    # -- judging -----------------------------------------------------------------------------

    def poll(
        self, *, at: int, now: float, interval_seconds: float, in_time: Callable[[], bool] = lambda: True
    ) -> StragglerChange:
        """End the interval if it has lasted long enough, and judge; ``now`` in seconds since the epoch.

        ``in_time`` is called after each piece of a comparison; False leaves the rest to the next poll.
        """
        if self.last is None:
            self.last = at
        if self._work is None:
            if at - self.last < interval_seconds * 1e9 or not self._members:
                return StragglerChange()
            self._newcomers.clear()
            self._work = self._compare_and_judge(self.last, at, now)
        done = 0
        try:
            while not done or (done < MAX_A_POLL and in_time()):
                done += PIECE_COST + next(self._work)
        except StopIteration as ended:
            self._work = None
            change: StragglerChange = ended.value
            return change
        return StragglerChange()

    def _compare_and_judge(self, begin: int, at: int, now: float) -> Generator[int, None, StragglerChange]:
        """Compare and judge after an interval, piece by piece; workers may come and go in between."""
        interval = yield from self._compared(at)
        self._history.remember(interval, begin=begin, end=at, newcomers=self._newcomers)
        self._newcomers.clear()
        self.last = at
        findings: Findings = {}
        for key, group in [(key, self._group(key)) for key in self._groups()]:
            scores = yield from self._scoring.score(self._history, key, group.rows, kernels=self._kernels.any, at=at)
            if scores is None:
                continue
            present = {worker for worker, member in self._members.items() if member.group == key}
            are_present = np.array([worker in present for worker in group.workers])
            if are_present.any():
                flags = self._flags
                findings.update(
                    findings_of(group.only(are_present), scores.only(are_present), self._history, flags, at=at, now=now)
                )
        known, self._flags = self._flags, findings
        cleared = tuple(finding for key, finding in known.items() if key not in findings)
        self.past.extend(PastFinding(finding, now) for finding in cleared)
        return StragglerChange(tuple(finding for key, finding in findings.items() if key not in known), cleared)

    def _compared(self, at: int) -> Generator[int, None, Interval]:
        """Growth since the last interval, compared within each group."""
        yield from self._prefixes.make_room(at=at)
        interval, learn = Interval.of(self._rows), self._fit_to_learn_from()
        gained = self._processes.gained()
        for key in self._groups():
            rows = self._group(key).rows
            rows = rows[rows < interval.workers]
            if not len(rows):  # all have left meanwhile
                continue
            yield from self._prefixes.compare(interval, key, rows, at=at, learn=learn)
            self._processes.compare(interval, rows, gained)
            yield len(rows) * len(PROCESS_SUMS)
            if self._kernels.any:
                interval.put(GPU_KERNEL, rows, *(yield from self._kernels.compare(rows)))
        yield from self._transfers.compare(interval, at=at)
        return interval

    def _groups(self) -> list[Hashable]:
        return list(dict.fromkeys(member.group for member in self._members.values()))

    def _group(self, key: Hashable) -> Group:
        rows = {member.row: (worker, member.host) for worker, member in self._members.items() if member.group == key}
        members = [rows[row] for row in sorted(rows)]
        return Group([name for name, _ in members], [host for _, host in members], np.array(sorted(rows), np.intp))

    def _fit_to_learn_from(self) -> Bool:
        """Mark the rows of workers that seem healthy: a slow one must not become its own baseline."""
        fit = np.ones(self._rows, bool)
        for place in self._history.newest(1):
            with np.errstate(invalid="ignore"):
                fit &= ~(self._history.residual[place, DURATION] > MIN_RESIDUAL[DURATION])
        for worker, _ in self._flags:
            if worker in self._members:
                fit[self._members[worker].row] = False
        return fit
