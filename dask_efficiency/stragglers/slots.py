"""Slots: what each worker's pace was in the last seconds, beside that of its peers."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.stragglers.pace import TASK_SUMS, TRANSFER_SUMS, VITAL_SUMS, Pace, Running
from dask_efficiency.stragglers.peers import Floats, median_by_row, median_of_others

#: What workers are compared by; greater is worse in all. ``duration``, ``receive``, ``send`` and ``disk`` are
#: logarithms of a ratio, the others differences of shares.
SIGNALS = ("duration", "cpu_share", "receive", "send", "disk", "memory")
DURATION, CPU_SHARE, RECEIVE, SEND, DISK, MEMORY = range(len(SIGNALS))

#: Prefixes kept apart; a new one takes the place of the one that was quiet for longest.
MAX_PREFIXES = 64

#: Tasks of a prefix that a worker must have ended to be compared by it.
MIN_TASKS = 3

#: Until so many of a prefix's workers have that many, the prefix waits for the next slot; but not for ever.
MIN_SHARE = 0.8
MAX_WAIT_NS = 60_000_000_000

#: Workers of a group that make peers; of fewer none can be told to be the slow one.
MIN_PEERS = 3

#: Sizes of a prefix's tasks that differ by this much (the variance of their logarithm; twice as large and half as
#: large give 0.24) are part of what its tasks are expected to take.
MIN_SIZE_VARIANCE = 0.1

#: What a task takes grows with its size by this power at most.
MAX_POWER = 1.5

#: Bytes in a slot that say something of the disk's speed.
MIN_DISK_BYTES = 1e6

#: Share of a slot that a worker's transfers must take to be compared.
MIN_TRANSFER_SHARE = 0.01

#: Own history: slots after which there is one, and the weight of each new slot.
MIN_HISTORY = 6
LEARNING = 0.15

_N, _WALL, _CPU, _LOG, _LOG2, _SIZE, _SIZE2, _PRODUCT, _SHARE, _SHARE2 = range(len(TASK_SUMS))


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """How far each worker was from its peers in one slot.

    Parameters
    ----------
    residual, variance
        Shape (signals, workers): how much worse than its peers, and how uncertain that is; NaN where nothing is known.
    tasks
        Shape (signals, workers): tasks, transfers or readings that this comes from.
    share
        Shape (workers,): share of the wall time of its tasks on the CPU; NaN where not known.
    core_wait, cpu
        Shape (workers,): seconds a second that its threads waited for a core, and used one; NaN where not known.
    """

    residual: Floats
    variance: Floats
    tasks: Floats
    share: Floats
    core_wait: Floats
    cpu: Floats


@dataclass(eq=False, slots=True)
class _Row:
    """A worker and where its columns are."""

    row: int
    group: Hashable
    at: int
    prefixes: tuple[str, ...] = ()
    columns: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    senders: tuple[str, ...] = ()
    sent: Floats = field(default_factory=lambda: np.zeros((0, len(TRANSFER_SUMS))))
    sent_before: dict[str, Floats] = field(default_factory=dict)
    running: tuple[Running, ...] = ()
    paused: float = 0.0


class SlotBook:
    """Keeps the workers' totals and compares what was added since the last slot.

    Memory is bounded by the workers that are there: 12 kB each.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        self._free = list(range(16))
        self._taken = 0
        self._columns: dict[str, int] = {}
        self._used_at: list[int] = [0] * MAX_PREFIXES
        self._since = np.zeros(MAX_PREFIXES, np.int64)
        size, sums, vitals = len(self._free), len(TASK_SUMS), len(VITAL_SUMS) + 2
        self._now = np.zeros((size, MAX_PREFIXES, sums))
        self._base = np.zeros((size, MAX_PREFIXES, sums))
        #: The vital sums, nanoseconds of the last heartbeat, and seconds paused.
        self._vitals = np.full((size, vitals), np.nan)
        self._vitals_base = np.full((size, vitals), np.nan)
        #: Usual logarithm of seconds a task, by worker and prefix, and slots that it comes from.
        self._usual = np.full((size, MAX_PREFIXES), np.nan)
        self._known = np.zeros((size, MAX_PREFIXES))
        self._groups = np.full(size, -1, np.intp)
        self._group_ids: dict[Hashable, int] = {}
        #: By prefix: the peers' logarithm of seconds a task at the last comparison, of size, and the power.
        self._expected = np.full((3, MAX_PREFIXES), np.nan)

    @property
    def capacity(self) -> int:
        """Rows that arrays have."""
        return len(self._now)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        arrays = (self._now, self._base, self._vitals, self._vitals_base, self._usual, self._known, self._groups)
        return sum(array.nbytes for array in arrays)

    def row_of(self, worker: str) -> int:
        """Where a worker is in arrays."""
        return self._rows[worker].row

    def joined(self, worker: str, group: Hashable, *, at: int) -> None:
        """A worker is there; ``group`` is equal for workers that can be compared."""
        self.left(worker)
        if not self._free:
            self._free = (
                list(range(self._grow(), len(self._now)))[::-1] if self._rows else [*range(self.capacity)][::-1]
            )
        row = self._free.pop()
        for array, value in ((self._now, 0), (self._base, 0), (self._known, 0)):
            array[row] = value
        for array in (self._vitals, self._vitals_base, self._usual):
            array[row] = np.nan
        self._rows[worker] = _Row(row, group, at)
        self._groups[row] = self._group_ids.setdefault(group, max(self._group_ids.values(), default=-1) + 1)

    def left(self, worker: str) -> None:
        """A worker is not there any more."""
        known = self._rows.pop(worker, None)
        if known is not None:
            self._free.append(known.row)
            self._groups[known.row] = -1
            if not any(other.group == known.group for other in self._rows.values()):
                self._group_ids = {row.group: self._group_ids[row.group] for row in self._rows.values()}

    def receive(self, worker: str, pace: Pace, *, at: int, paused: float) -> None:
        """A worker's totals came; a total below the last one is that of a new beginning."""
        known = self._rows.get(worker)
        if known is None:
            return
        row = known.row
        if pace.prefixes != known.prefixes:
            self._map(known, pace.prefixes, at)
        columns = known.columns
        if len(columns):
            before = self._now[row, columns, _N]
            tasks = pace.tasks
            fallen = tasks[:, _N] < before
            if fallen.any():
                self._base[row, columns[fallen]] = 0
            for column in columns[tasks[:, _N] > before].tolist():
                self._used_at[column] = at
            self._now[row, columns] = tasks
        known.senders, known.sent, known.running = pace.senders, pace.transfers, pace.running
        self._vitals[row, :-2] = pace.vitals
        self._vitals[row, -2:] = at, paused

    def take(self, *, at: int, learn: NDArray[np.bool_] | None = None) -> Slot:
        """What was added since the last slot, compared within the groups.

        Parameters
        ----------
        at
            Monotonic nanoseconds.
        learn
            By row: whether the worker is as it should be, so that its history may learn from this slot.
        """
        shape = len(SIGNALS), self.capacity
        residual, variance, tasks = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape)
        slot = Slot(residual, variance, tasks, *(np.full(shape[1], np.nan) for _ in range(3)))
        for group in self._group_ids.values():
            rows = np.flatnonzero(self._groups == group)
            self._compare_tasks(slot, rows, at, learn)
            self._compare_vitals(slot, rows)
        self._compare_transfers(slot, (at - self._taken) / 1e9)
        self._vitals_base[:] = self._vitals
        self._taken = at
        return slot

    # -- tasks -------------------------------------------------------------------------------

    def _compare_tasks(self, slot: Slot, rows: NDArray[np.intp], at: int, learn: NDArray[np.bool_] | None) -> None:
        counts = self._now[rows, :, _N] - self._base[rows, :, _N]
        enough = counts >= MIN_TASKS
        some, ready = (counts > 0).sum(axis=0), enough.sum(axis=0)
        fresh = some == 0
        self._since[fresh] = at
        peers = min(MIN_PEERS, max(2, len(rows)))
        ripe = (ready >= peers) & (ready >= MIN_SHARE * some)
        late = (some >= peers) & (at - self._since > MAX_WAIT_NS)
        columns = np.flatnonzero(ripe | late)
        if not len(columns):
            self._add_running(slot, rows)
            return
        picked = np.ix_(rows, columns)
        sums = (self._now[picked] - self._base[picked]).transpose(2, 1, 0)
        self._base[picked] = self._now[picked]
        self._since[columns] = at
        n = sums[_N]
        least = np.where(ripe[columns], MIN_TASKS, 1)[:, None]
        there = n >= least
        with np.errstate(divide="ignore", invalid="ignore"):
            n = np.where(there, n, np.nan)
            level, noise, power, size = _by_size(sums, n)
            others = median_of_others(level)
            self._expected[:, columns] = median_by_row(level), size, power
            residual = self._with_history(level, others, rows, columns, there, learn)
            share = sums[_CPU] / sums[_WALL]
            below = median_of_others(share) - share
            if len(rows) < MIN_PEERS:
                below[:] = np.nan
            share_noise = _pooled(sums[_SHARE], sums[_SHARE2], n)
            # What a prefix says counts by the time that its tasks would take the peers.
            weight = np.where(there, n * np.exp(np.where(np.isfinite(others), others, level)), 0.0)
        _combine(slot, DURATION, rows, residual, noise[:, None] / n, weight, n)
        _combine(slot, CPU_SHARE, rows, below, share_noise[:, None] / n, weight, n)
        slot.share[rows] = _mean(share, np.where(there, weight, 0.0))
        self._add_running(slot, rows)

    def _with_history(
        self,
        level: Floats,
        others: Floats,
        rows: NDArray[np.intp],
        columns: NDArray[np.intp],
        there: NDArray[np.bool_],
        learn: NDArray[np.bool_] | None,
    ) -> Floats:
        """By how much workers are above their peers; above their own past where peers cannot tell.

        Peers cannot tell where they are too few, or where more than half of them became slow. Then the workers that
        are as they were stand for the rest: where none is, the work has changed, and nobody is to blame.
        """
        picked = np.ix_(rows, columns)
        usual, known = self._usual[picked].T, self._known[picked].T
        change = np.where(known >= MIN_HISTORY, level - usual, np.nan)
        told = np.isfinite(change).sum(axis=1)
        slowed = (change > math.log(1.1)).sum(axis=1)
        residual = level - others
        alone = there.sum(axis=1) < MIN_PEERS
        residual[alone] = np.nan
        unfit = (told >= 2) & (alone | (slowed > told / 2))
        for i in np.flatnonzero(unfit):
            as_before = float(np.nanquantile(change[i], 0.25 if told[i] > MIN_PEERS else 0.0))
            residual[i] = np.minimum(change[i], change[i] - as_before)
        fit = np.ones(len(rows), bool) if learn is None else learn[rows]
        new = there & fit[None, :]
        step = np.where(np.isnan(usual), 1.0, LEARNING)
        updated = np.where(np.isnan(usual), level, usual + step * (level - usual))
        self._usual[picked] = np.where(new, updated, usual).T
        self._known[picked] = np.where(new, known + 1, known).T
        return residual

    def _add_running(self, slot: Slot, rows: NDArray[np.intp]) -> None:
        """Tasks that have not ended, and have run longer than others': the least that they will take."""
        here = set(rows.tolist())
        for known in self._rows.values():
            if not known.running or known.row not in here:
                continue
            beyond, weight, count = 0.0, 0.0, 0
            for task in known.running:
                column = self._columns.get(task.prefix)
                if column is None or task.seconds <= 0 or len(rows) < MIN_PEERS:
                    continue
                level, size, power = self._expected[:, column]
                expected = level + (power * (math.log1p(task.nbytes) - size) if power else 0.0)
                excess = math.log(task.seconds) - expected
                if excess > math.log(2.0):
                    beyond += task.seconds * excess
                    weight += task.seconds
                    count += 1
            if count:
                self._merge(slot, known.row, beyond / weight, weight)

    @staticmethod
    def _merge(slot: Slot, row: int, excess: float, weight: float) -> None:
        """Running tasks count as one task that ended now, which says less than those that did."""
        tasks = slot.tasks[DURATION, row]
        so_far = slot.residual[DURATION, row]
        if not np.isfinite(so_far):
            slot.residual[DURATION, row], slot.variance[DURATION, row] = excess, 0.25
        elif excess > so_far:
            slot.residual[DURATION, row] = (tasks * so_far + excess) / (tasks + 1)
        slot.tasks[DURATION, row] = tasks + 0.25

    # -- the rest ----------------------------------------------------------------------------

    def _compare_vitals(self, slot: Slot, rows: NDArray[np.intp]) -> None:
        gained = self._vitals[rows] - self._vitals_base[rows]
        seconds, nbytes, wait, cpu, elapsed, paused = gained.T
        took = elapsed / 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            known = took > 0
            slot.core_wait[rows] = np.where(known & (self._vitals[rows, 2] >= 0), wait / took, np.nan)
            slot.cpu[rows] = np.where(known, cpu / took, np.nan)
            cost = np.where(nbytes >= MIN_DISK_BYTES, np.log(seconds / nbytes), np.nan)
            _single(slot, DISK, rows, cost - _peers_of(cost), 0.02)
            share = np.where(known, np.clip(paused / took, 0.0, 1.0), np.nan)
            _single(slot, MEMORY, rows, share - _peers_of(share), 0.0025)

    def _compare_transfers(self, slot: Slot, slot_seconds: float) -> None:
        """What receivers and senders add to the cost of a byte, each apart from the other."""
        receivers: list[int] = []
        senders: list[int] = []
        sums: list[Floats] = []
        for known in self._rows.values():
            before = known.sent_before
            now = dict(zip(known.senders, known.sent, strict=True))
            for address, row in now.items():
                there = self._rows.get(address)
                gained = row - before[address] if address in before and before[address][0] <= row[0] else row
                if there is not None and gained[0] > 0:
                    receivers.append(known.row)
                    senders.append(there.row)
                    sums.append(gained)
            known.sent_before = now
        if not sums:
            return
        table = np.array(sums)
        receiver, sender = np.array(receivers, np.intp), np.array(senders, np.intp)
        n, cost = table[:, 0], table[:, 1] / table[:, 0]
        noise = float(np.median(np.maximum(table[:, 2] / n - cost**2, 0.0))) + 0.04
        effects = _two_ways(cost, n, receiver, sender, self.capacity)
        for signal, effect, end in zip((RECEIVE, SEND), effects, (receiver, sender), strict=True):
            count = np.bincount(end, weights=n, minlength=self.capacity)
            took = np.bincount(end, weights=table[:, 3], minlength=self.capacity)
            rows = np.flatnonzero((count > 0) & (took >= MIN_TRANSFER_SHARE * slot_seconds))
            if len(rows) >= MIN_PEERS:
                level = effect[rows]
                slot.residual[signal, rows] = level - median_of_others(level[None, :])[0]
                slot.variance[signal, rows] = noise / count[rows]
                slot.tasks[signal, rows] = count[rows]

    # -- arrays ------------------------------------------------------------------------------

    def _grow(self) -> int:
        size = self.capacity
        for name in ("_now", "_base", "_vitals", "_vitals_base", "_usual", "_known", "_groups"):
            array = getattr(self, name)
            empty = np.full((size, *array.shape[1:]), -1 if name == "_groups" else 0, array.dtype)
            setattr(self, name, np.concatenate([array, empty]))
        return size

    def _map(self, known: _Row, prefixes: tuple[str, ...], at: int) -> None:
        gone = set(known.prefixes) - set(prefixes)
        for prefix in gone:
            column = self._columns.get(prefix)
            if column is not None:  # when it comes again, it begins at 0
                self._now[known.row, column] = self._base[known.row, column] = 0
        known.prefixes = prefixes
        known.columns = np.array([self._column(prefix, at) for prefix in prefixes], np.intp)

    def _column(self, prefix: str, at: int) -> int:
        column = self._columns.get(prefix)
        if column is not None:
            return column
        if len(self._columns) < MAX_PREFIXES:
            column = len(self._columns)
        else:
            column = int(np.argmin(self._used_at))
            old = next(name for name, place in self._columns.items() if place == column)
            del self._columns[old]
            for known in self._rows.values():  # they look their columns up again
                if old in known.prefixes:
                    known.prefixes = ()
        self._columns[prefix] = column
        self._used_at[column] = at
        self._since[column] = at
        self._now[:, column] = self._base[:, column] = 0
        self._usual[:, column] = np.nan
        self._known[:, column] = 0
        self._expected[:, column] = np.nan
        return column


def _by_size(sums: Floats, n: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Logarithm of the seconds that a task of the usual size takes, its noise, and the power and the usual size."""
    level = np.log(sums[_WALL] / n)
    noise = _pooled(sums[_LOG], sums[_LOG2], n)
    whole = np.nansum(n, axis=1)
    total = np.where(np.isnan(n)[None], 0.0, sums).sum(axis=2)
    size = total[_SIZE] / whole
    spread = total[_SIZE2] / whole - size**2
    together = total[_PRODUCT] / whole - size * total[_LOG] / whole
    power = np.where(spread > MIN_SIZE_VARIANCE, np.clip(together / spread, 0.0, MAX_POWER), 0.0)
    level = level - power[:, None] * (sums[_SIZE] / n - size[:, None])
    noise = np.maximum(noise - power**2 * _pooled(sums[_SIZE], sums[_SIZE2], n), 1e-4)
    return level, noise, power, size


def _pooled(total: Floats, squares: Floats, n: Floats) -> Floats:
    """Variance among a worker's tasks, of the usual worker, by prefix."""
    variance = np.maximum(squares / n - (total / n) ** 2, 0.0) * n / np.maximum(n - 1, 1)
    # Not the median over those of a single task: that has no variance.
    variance = np.where(n > 1, variance, np.nan)
    some = np.isfinite(variance).any(axis=1)
    pooled: Floats = np.maximum(np.where(some, median_by_row(variance), 0.04), 1e-4)
    return pooled


def _combine(
    slot: Slot, signal: int, rows: NDArray[np.intp], residual: Floats, variance: Floats, weight: Floats, n: Floats
) -> None:
    """One number a worker from those of its prefixes, by weight."""
    known = np.isfinite(residual) & (weight > 0)
    weight = np.where(known, weight, 0.0)
    whole = weight.sum(axis=0)
    there = whole > 0
    share = weight[:, there] / whole[there]
    slot.residual[signal, rows[there]] = (share * np.where(known, residual, 0.0)[:, there]).sum(axis=0)
    slot.variance[signal, rows[there]] = (share**2 * np.where(known, variance, 0.0)[:, there]).sum(axis=0)
    slot.tasks[signal, rows[there]] = np.where(known, n, 0.0)[:, there].sum(axis=0)


def _mean(values: Floats, weight: Floats) -> Floats:
    whole = weight.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = (np.where(weight > 0, values, 0.0) * weight).sum(axis=0) / whole
    return mean


def _single(slot: Slot, signal: int, rows: NDArray[np.intp], residual: Floats, variance: float) -> None:
    slot.residual[signal, rows] = residual
    slot.variance[signal, rows] = np.where(np.isfinite(residual), variance, np.nan)
    # A reading is worth a handful of tasks.
    slot.tasks[signal, rows] = np.where(np.isfinite(residual), MIN_TASKS, 0)


def _peers_of(values: Floats) -> Floats:
    """The median of the others, where there are enough of them."""
    if np.isfinite(values).sum() < MIN_PEERS:
        return np.full(len(values), np.nan)
    others: Floats = median_of_others(values[None, :])[0]
    return others


def _two_ways(
    cost: Floats, n: Floats, receiver: NDArray[np.intp], sender: NDArray[np.intp], size: int
) -> tuple[Floats, Floats]:
    """Effects of the receiver and of the sender that together come closest to the costs of all pairs."""
    ends = [np.zeros(size), np.zeros(size)]
    middle = float(np.median(cost))
    for _ in range(4):
        for this, other, at, of in ((0, 1, receiver, sender), (1, 0, sender, receiver)):
            left = cost - middle - ends[other][of]
            # Winsorised, so that one pair does not pass for a worker.
            left = np.clip(left, ends[this][at] - 1.5, ends[this][at] + 1.5)
            whole = np.bincount(at, weights=n, minlength=size)
            ends[this] = np.bincount(at, weights=n * left, minlength=size) / np.maximum(whole, 1e-9)
            ends[this] -= np.median(ends[this][whole > 0])
    return ends[0], ends[1]
