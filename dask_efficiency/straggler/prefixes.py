"""PrefixComparison: compares the time that workers take for tasks of the same prefixes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool
from dask_efficiency.straggler.columns import MAX_COLUMNS, Columns, WorkerArrays
from dask_efficiency.straggler.history import MAX_WAIT_NS, Interval
from dask_efficiency.straggler.live_score import MIN_INTERVALS, NEARLY_ALL
from dask_efficiency.straggler.observations import MAX_POWER
from dask_efficiency.straggler.peers import (
    LITTLE,
    MIN_ALIKE,
    MIN_PEERS,
    NOISE,
    WORKERS_AT_ONCE,
    Floats,
    Places,
    WeightedSums,
    in_pieces,
    median,
    median_of_others,
    variance_of_difference,
)
from dask_efficiency.straggler.signals import CPU_SHARE, DURATION, GIANT, LONGER
from dask_efficiency.straggler.task_rates import TASK_SUMS, RunningTask, TaskRates

#: Variance of the logarithm of a prefix's sizes above which larger inputs are expected to take longer: sizes of half
#: and twice the median give 0.24. A guess.
MIN_SIZE_VARIANCE = 0.1

#: Tasks that the assumed variance of the logarithm of a task's seconds is worth. A guess.
USUAL_TASKS = 2.0
#: Weight with which a worker's own history learns from each new interval; a guess.
LEARNING = 0.15
#: Running tasks that must take longer than others': a single one may just be a long task.
MIN_RUNNING = 2
#: Residual of a running task, or logarithm of the size of an input, beyond what ended tasks show.
BEYOND = math.log(2.0)
#: Cost of a worker with running tasks, in comparisons.
RUNNING_COST = 6
#: Workers per piece where all prefixes are looked at.
ROWS_AT_ONCE = 500

_N, _WALL, _CPU, _LOG, _LOG2, _SIZE, _SIZE2, _PRODUCT, _SHARE, _SHARE2 = range(len(TASK_SUMS))


@dataclass(eq=False, slots=True)
class _WorkerPrefixes:
    """Prefixes of a worker, their columns, and the tasks that it runs."""

    prefixes: tuple[str, ...] = ()
    #: Columns of prefixes as of a version of the table of columns, and the indices of these prefixes.
    columns: Places = field(default_factory=lambda: np.zeros(0, np.intp))
    places: Places = field(default_factory=lambda: np.zeros(0, np.intp))
    version: int = 0
    #: Prefixes without a column, and the ended tasks of each.
    without: Places = field(default_factory=lambda: np.zeros(0, np.intp))
    ended: Floats = field(default_factory=lambda: np.zeros(0))
    running: tuple[RunningTask, ...] = ()


@dataclass(eq=False, slots=True)
class _Group:
    """Prefixes of a group of workers."""

    #: By prefix, when the tasks not compared yet began to come.
    since: NDArray[np.int64]
    #: By prefix, as of the last comparison: logarithms of a task's seconds and of the usual size, and the power.
    expected: Floats = field(default_factory=lambda: np.full((3, MAX_COLUMNS), np.nan))


@dataclass(eq=False, slots=True)
class _Sums:
    """Sums over prefixes, by worker."""

    duration: WeightedSums
    cpu_share: WeightedSums
    on_cpu: WeightedSums
    task_variance: WeightedSums


class PrefixComparison(WorkerArrays):
    """Keeps totals of tasks by prefix, and compares their growth since the last comparison."""

    # Workers are the first axis of the sums, so that what a heartbeat writes lies together.
    ARRAYS = (
        *((name, 0, 0.0) for name in ("_now", "_base", "_compared_until")),
        *(("_usual", 1, np.nan), ("_known", 1, 0.0)),
    )

    def __init__(self, rows: int) -> None:
        self._columns: Columns[str] = Columns(MAX_COLUMNS)
        #: Grows when columns are taken from prefixes.
        self._version = 0
        #: Prefixes that have new tasks and no column.
        self._wanted: set[str] = set()
        self._workers: dict[int, _WorkerPrefixes] = {}
        self._groups: dict[Hashable, _Group] = {}
        self._now = np.zeros((rows, MAX_COLUMNS, len(TASK_SUMS)))
        self._base = np.zeros_like(self._now)
        #: Seconds of all tasks of a worker when they were last compared.
        self._compared_until = np.zeros(rows)
        #: By prefix and worker, the usual logarithm of a task's seconds, and the number of intervals behind it.
        self._usual = np.full((MAX_COLUMNS, rows), np.nan)
        self._known = np.zeros((MAX_COLUMNS, rows))

    def reset(self, row: int) -> None:
        """Clear a row, which another worker has now."""
        self._workers[row] = _WorkerPrefixes()
        super().reset(row)

    def begin_group(self, group: Hashable, *, at: int) -> None:
        """Add a group of workers that can be compared, unless it is there."""
        if group not in self._groups:
            self._groups[group] = _Group(np.full(MAX_COLUMNS, at, np.int64))

    def end_group(self, group: Hashable) -> None:
        """Remove a group that its last worker left."""
        del self._groups[group]

    def receive(self, row: int, rates: TaskRates, *, at: int) -> None:
        """Take in a worker's totals; a total that shrinks has started anew."""
        worker = self._workers[row]
        if worker.version != self._version or rates.prefixes != worker.prefixes:
            self._map(row, worker, rates, at)
        elif len(worker.without):
            self._ask_for_columns(row, worker, rates, at)
        columns = worker.columns
        if len(columns):
            tasks = rates.tasks[worker.places] if len(worker.without) else rates.tasks
            now = self._now[row]
            gained = tasks[:, _N] - now[columns, _N]
            if gained.min() < 0:
                self._base[row, columns[gained < 0]] = 0
            self._columns.used_at[columns[gained > 0]] = at
            now[columns] = tasks
        worker.running = rates.running

    def make_room(self, *, at: int) -> Iterator[int]:
        """Give columns of unused prefixes to those that want one, between comparisons; yields the numbers cleared."""
        wanted, self._wanted = self._wanted, set()
        missing = len(wanted) - len(self._columns.free)
        if missing <= 0:
            return
        # While they are being cleared, no heartbeat writes to them and no prefix gets them.
        columns = [self._columns.pop(prefix) for prefix in self._columns.quiet(before=at - MAX_WAIT_NS)[:missing]]
        if not columns:
            return
        self._version += 1
        rows = np.array(sorted(self._workers), np.intp)
        for part in _parts(rows):
            picked = np.ix_(part, np.array(columns))
            self._now[picked] = self._base[picked] = 0.0
            yield len(part)
        for column in columns:
            self._usual[column], self._known[column] = np.nan, 0.0
            self._columns.free.append(column)

    def compare(self, interval: Interval, group: Hashable, rows: Places, *, at: int, learn: Bool) -> Iterator[int]:
        """Compare the workers of a group, of which those that ``learn`` marks seem healthy; yields numbers compared."""
        if group in self._groups:
            yield from self._compare_ended(interval, self._groups[group], rows, at, learn)
            yield from self._add_running(interval, self._groups.get(group), rows)

    def _compare_ended(self, interval: Interval, group: _Group, rows: Places, at: int, learn: Bool) -> Iterator[int]:
        some, ready = np.zeros((2, MAX_COLUMNS), np.intp)
        for part in _parts(rows):
            counts = self._now[part, :, _N] - self._base[part, :, _N]
            some += (counts > 0).sum(axis=0)
            ready += (counts >= MIN_ALIKE).sum(axis=0)
            yield len(part)
        group.since[some == 0] = at
        peers = min(MIN_PEERS, max(2, len(rows)))
        ripe = (ready >= peers) & (ready >= NEARLY_ALL * some)
        late = (some >= peers) & (at - group.since > MAX_WAIT_NS)
        sums = _Sums(*(WeightedSums.of(len(rows)) for _ in range(4)))
        for columns in in_pieces(np.flatnonzero(ripe | late), len(rows)):
            least = np.where(ripe[columns], MIN_ALIKE, 1)
            self._compare_columns(group, rows, columns, least, learn, sums)
            group.since[columns] = at
            yield len(rows) * len(columns)
        yield from self._leave_out_small_parts(rows, sums)
        interval.put(DURATION, rows, *sums.duration.mean())
        interval.put(CPU_SHARE, rows, *sums.cpu_share.mean())
        interval.on_cpu[rows], interval.task_variance[rows] = sums.on_cpu.mean()[0], sums.task_variance.mean()[0]

    def _leave_out_small_parts(self, rows: Places, sums: _Sums) -> Iterator[int]:
        """Leave out workers that spent nearly all their time on prefixes that others do not run."""
        took = np.zeros(len(rows))
        for part, place in zip(_parts(rows), _parts(np.arange(len(rows))), strict=True):
            took[place] = self._now[part, :, _WALL].sum(axis=1)
            yield len(part)
        compared = sums.duration.seconds
        small = compared < LITTLE * (took - self._compared_until[rows])
        self._compared_until[rows] = np.where(compared > 0, took, self._compared_until[rows])
        sums.duration.weight[small] = sums.cpu_share.weight[small] = 0.0

    def _compare_columns(
        self, group: _Group, rows: Places, columns: Places, least: Places, learn: Bool, sums: _Sums
    ) -> None:
        """Compare by some prefixes, whose sums then start anew."""
        picked = np.ix_(rows, columns)
        now = self._now[picked]
        gained = np.ascontiguousarray((now - self._base[picked]).T)
        self._base[picked] = now
        n = gained[_N]
        enough = n >= least[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            n = np.where(enough, n, np.nan)
            level, noise, power, size = _by_size(gained, n)
            others = median_of_others(level)
            group.expected[:, columns] = median(level), size, power
            residual = self._with_history(level, others, rows, columns, enough, learn)
            share = np.where(enough, gained[_CPU] / gained[_WALL], np.nan)
            below = median_of_others(share) - share if len(rows) >= MIN_PEERS else np.full_like(share, np.nan)
            share_noise = _pooled(gained[_SHARE], gained[_SHARE2], n)
            # A prefix weighs as much as the time that its tasks would take on the peers.
            weight = np.where(enough, n * np.exp(np.where(np.isfinite(others), others, level)), 0.0)
            took = gained[_N], gained[_WALL]
            wider = variance_of_difference(enough)
            sums.duration.add(residual, noise[:, None] / n * wider, weight, *took)
            sums.cpu_share.add(below, share_noise[:, None] / n * wider, weight, *took)
            sums.on_cpu.add(share, share_noise[:, None] / n, weight, *took)
            sums.task_variance.add(np.broadcast_to(noise[:, None], n.shape), np.zeros_like(n), weight, *took)

    def _with_history(
        self, level: Floats, others: Floats, rows: Places, columns: Places, enough: Bool, learn: Bool
    ) -> Floats:
        """Residuals against the peers; or against a worker's own past, where they are too few, or most became slow."""
        # Then the workers that did not change stand for the rest. Where none is, the work has changed, and peers are a
        # baseline again.
        picked = np.ix_(columns, rows)
        usual, known = self._usual[picked], self._known[picked]
        change = np.where(known >= MIN_INTERVALS, level - usual, np.nan)
        with_history = np.isfinite(change).sum(axis=1)
        slowed = (change > LONGER).sum(axis=1)
        residual = level - others
        present = enough.sum(axis=1)
        alone = present < MIN_PEERS
        residual[alone] = np.nan
        # More than half of all workers: among those with a history, two that are a little slow would be enough.
        unfit = (with_history >= 2) & (alone | (slowed > present / 2))
        for i in np.flatnonzero(unfit):
            as_before = float(np.nanquantile(change[i], 0.25 if with_history[i] > MIN_PEERS else 0.0))
            if alone[i] or as_before <= LONGER:
                residual[i] = np.minimum(change[i], change[i] - as_before)
        new = enough & learn[rows][None, :]
        updated = np.where(np.isnan(usual), level, usual + LEARNING * (level - usual))
        self._usual[picked] = np.where(new, updated, usual)
        self._known[picked] = np.where(new, known + 1, known)
        return residual

    def _add_running(self, interval: Interval, group: _Group | None, rows: Places) -> Iterator[int]:
        """Add running tasks that took longer than ended ones, with their time so far."""
        if group is None or len(rows) < MIN_PEERS:
            return
        expected = group.expected.T.tolist()
        for number, row in enumerate(rows.tolist(), 1):
            if not number % WORKERS_AT_ONCE:
                yield RUNNING_COST * WORKERS_AT_ONCE
            running = self._workers[row].running
            if not running:
                continue
            beyond = weight = 0.0
            tasks = 0
            for task in running:
                column = self._columns.get(task.prefix)
                if column is None or task.seconds <= 0:
                    continue
                level, size, power = expected[column]
                larger = math.log1p(task.nbytes) - size
                # The time of a task larger than all that ended is unknown: assume that it grows with its size.
                power = max(power, 1.0) if larger > BEYOND else power
                residual = math.log(task.seconds) - level - (power * larger if power else 0.0)
                if residual > BEYOND:
                    beyond += task.seconds * residual
                    weight += task.seconds
                    tasks += 1
            if tasks >= MIN_RUNNING:
                _add_censored(interval, row, beyond / weight)

    def _map(self, row: int, worker: _WorkerPrefixes, rates: TaskRates, at: int) -> None:
        """Find the columns of a worker's prefixes; new ones, and those with new tasks, get one, as most have ended."""
        before, prefixes, tasks = worker.prefixes, rates.prefixes, rates.tasks
        dropped = [self._columns[prefix] for prefix in set(before).difference(prefixes) if prefix in self._columns]
        self._now[row, dropped] = self._base[row, dropped] = 0  # when one comes again, it begins at 0
        former = {before[i]: column for i, column in zip(worker.places.tolist(), worker.columns.tolist(), strict=True)}
        ended = {before[i]: n for i, n in zip(worker.without.tolist(), worker.ended.tolist(), strict=True)}
        columns = [self._columns.get(prefix) for prefix in prefixes]
        if self._columns.free or len(self._wanted) < MAX_COLUMNS:
            n = tasks[:, _N].tolist()
            for i in [i for i, column in enumerate(columns) if column is None and prefixes[i] not in former]:
                if prefixes[i] not in ended or n[i] > ended[prefixes[i]]:
                    columns[i] = self._column(prefixes[i], at)
        # Tasks that ended before the prefix got its column are not compared.
        for i, (prefix, column) in enumerate(zip(prefixes, columns, strict=True)):
            # It may have another column than before, or the same one again after it was cleared.
            moved = worker.version != self._version and prefix in former
            if column is not None and (
                prefix in ended or (moved and (column != former[prefix] or not self._now[row, column, _N]))
            ):
                self._now[row, column] = self._base[row, column] = tasks[i]
        worker.prefixes, worker.version = prefixes, self._version
        worker.columns = np.array([column for column in columns if column is not None], np.intp)
        worker.places = np.array([i for i, column in enumerate(columns) if column is not None], np.intp)
        worker.without = np.array([i for i, column in enumerate(columns) if column is None], np.intp)
        worker.ended = tasks[worker.without, _N]

    def _ask_for_columns(self, row: int, worker: _WorkerPrefixes, rates: TaskRates, at: int) -> None:
        """Map a worker anew if one of its prefixes without a column has new tasks and can get one."""
        ended = rates.tasks[worker.without, _N]
        news = [rates.prefixes[i] for i in worker.without[ended > worker.ended].tolist()]
        if news and (self._columns.free or any(prefix in self._columns for prefix in news)):
            self._map(row, worker, rates, at)
            return
        worker.ended = ended
        if len(self._wanted) < MAX_COLUMNS:
            self._wanted.update(news)

    def _column(self, prefix: str, at: int) -> int | None:
        """Assign a column to a prefix; None if there is no room now."""
        if not self._columns.free:
            if len(self._wanted) < MAX_COLUMNS:
                self._wanted.add(prefix)
            return None
        column = self._columns.add(prefix, at=at)
        for group in self._groups.values():
            group.since[column] = at
            group.expected[:, column] = np.nan
        return column


def _parts(rows: Places) -> Iterator[Places]:
    """Rows in pieces of which all prefixes are looked at."""
    for first in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[first : first + ROWS_AT_ONCE]


def _add_censored(interval: Interval, row: int, residual: float) -> None:
    """Count a worker's running tasks as one task that ended now, with less weight than one that did."""
    tasks = interval.tasks[DURATION, row]
    so_far = interval.residual[DURATION, row]
    if not np.isfinite(so_far):
        interval.residual[DURATION, row], interval.variance[DURATION, row] = residual, 0.25
    elif residual > so_far:
        interval.residual[DURATION, row] = (tasks * so_far + residual) / (tasks + 1)
    interval.tasks[DURATION, row] = tasks + 0.25


def _by_size(sums: Floats, n: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Logarithm of the seconds of a task of the usual size, its variance, the power, and the usual size."""
    level = np.log(sums[_WALL] / n)
    noise = _pooled(sums[_LOG], sums[_LOG2], n)
    whole = np.nansum(n, axis=1)
    total = np.where(np.isnan(n)[None], 0.0, sums).sum(axis=2)
    size = total[_SIZE] / whole
    spread = total[_SIZE2] / whole - size**2
    together = total[_PRODUCT] / whole - size * total[_LOG] / whole
    power = np.where(spread > MIN_SIZE_VARIANCE, np.clip(together / spread, 0.0, MAX_POWER), 0.0)
    level = level - power[:, None] * (sums[_SIZE] / n - size[:, None])
    # The logarithm of a mean varies by more than the mean of logarithms, and only the latter follows the size: a few
    # long tasks weigh a lot in a mean, though none for more than a giant's.
    whole_noise = np.minimum(noise, GIANT**2)
    of_size = power**2 * _pooled(sums[_SIZE], sums[_SIZE2], n)
    return level, np.maximum(noise - of_size, 1e-4) + np.expm1(whole_noise) - whole_noise, power, size


def _pooled(total: Floats, squares: Floats, n: Floats) -> Floats:
    """Variance among one worker's tasks, by prefix, estimated from all workers together."""
    tasks = np.where(n > 1, n, np.nan)
    within = np.nansum(np.maximum(squares - total**2 / tasks, 0.0), axis=1)
    free = np.nansum(tasks - 1, axis=1)
    pooled: Floats = (within + USUAL_TASKS * NOISE) / (free + USUAL_TASKS)
    return np.maximum(pooled, 1e-4)
