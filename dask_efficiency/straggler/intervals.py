"""Slots: what each worker's pace was in the last seconds, beside that of its peers."""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.totals import KernelTotals
from dask_efficiency.straggler.kernels import KernelBook
from dask_efficiency.straggler.peers import MIN_PEERS, Floats, median_by_row, median_of_others
from dask_efficiency.straggler.signals import LIVE
from dask_efficiency.straggler.task_rates import TASK_SUMS, TRANSFER_SUMS, VITAL_SUMS, Pace, Running
from dask_efficiency.straggler.weighted import WeightedSums, of_reference

#: What workers are compared by; greater is worse in all. ``duration``, ``receive``, ``send``, ``disk`` and
#: ``gpu_kernel`` are logarithms of a ratio, the others differences: of shares, and of CPU seconds a second beside those
#: of tasks.
SIGNALS = tuple(LIVE)
DURATION, CPU_SHARE, RECEIVE, SEND, DISK, MEMORY, CORE_WAIT, BESIDE_TASKS, GPU_KERNEL = range(len(SIGNALS))

#: Prefixes kept apart; a new one takes the place of the one that was quiet for longest.
MAX_PREFIXES = 64

#: Tasks of a prefix that a worker must have ended to be compared by it.
MIN_TASKS = 3

#: Share of its tasks' time that must be of prefixes by which it can be compared.
MIN_PART = 0.1

#: Until so many of a prefix's workers have that many, the prefix waits for the next slot; but not for ever.
MIN_SHARE = 0.8
MAX_WAIT_NS = 60_000_000_000

#: Sizes of a prefix's tasks that differ by this much (the variance of their logarithm; twice as large and half as
#: large give 0.24) are part of what its tasks are expected to take.
MIN_SIZE_VARIANCE = 0.1

#: What a task takes grows with its size by this power at most.
MAX_POWER = 1.5

#: Variance of the logarithm of what a prefix's tasks take, before any is known, as if so many tasks had told; and
#: what counts of it at most.
USUAL_NOISE = 0.04
USUAL_TASKS = 2.0
MAX_NOISE = 2.0

#: Bytes in a slot that say something of the disk's speed.
MIN_DISK_BYTES = 1e6

#: Seconds a second in which a process's threads want a core, for the share that they wait for it to say something.
MIN_RUNNABLE = 0.05

#: Share of a slot that a worker's transfers must take to be compared.
MIN_TRANSFER_SHARE = 0.01

#: Own history: slots after which there is one, and the weight of each new slot.
MIN_HISTORY = 6
LEARNING = 0.15

#: How often the effects of receivers and senders are put in line with each other.
SWEEPS = 3

#: Running tasks of a worker that must take longer than others': of a single one, it may be the task.
MIN_RUNNING = 2

#: A worker with running tasks takes as long as so many numbers that are compared.
RUNNING_COST = 6

#: Numbers that are compared in one piece.
PIECE = 3_000

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
    apart
        Shape (workers,): how far tasks of one prefix are apart, as the variance of the logarithm of their seconds; NaN
        where not known.
    """

    residual: Floats
    variance: Floats
    tasks: Floats
    share: Floats
    apart: Floats


@dataclass(eq=False, slots=True)
class _Row:
    """A worker and where it is in arrays."""

    row: int
    group: Hashable
    prefixes: tuple[str, ...] = ()
    columns: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    senders: tuple[str, ...] = ()
    sent: Floats = field(default_factory=lambda: np.zeros((0, len(TRANSFER_SUMS))))
    #: What was added to ``sent`` since it was last compared.
    moved: Floats | None = None
    running: tuple[Running, ...] = ()
    #: Where the senders are in arrays, and of which membership that holds.
    places: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    places_of: int = -1


@dataclass(eq=False, slots=True)
class _Group:
    """Workers that can be compared, and what is known of their prefixes."""

    id: int
    #: When what is not compared yet began to come, by prefix.
    since: NDArray[np.int64] = field(default_factory=lambda: np.zeros(MAX_PREFIXES, np.int64))
    #: By prefix: the logarithm of seconds a task at the last comparison, that of the usual size, and the power.
    expected: Floats = field(default_factory=lambda: np.full((3, MAX_PREFIXES), np.nan))


class SlotBook:
    """Keeps the workers' totals and compares what was added since the last slot.

    Memory is bounded by the workers that are there: 13 kB each.
    """

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}
        #: Grows when a worker comes or goes.
        self._membership = 0
        self._free = list(range(16))
        self._transfers_taken = 0
        self._columns: dict[str, int] = {}
        self._used_at = np.zeros(MAX_PREFIXES, np.int64)
        size, sums, vitals = len(self._free), len(TASK_SUMS), len(VITAL_SUMS) + 3
        # Workers are the last axis of all but these: what a heartbeat writes lies together.
        self._now = np.zeros((size, MAX_PREFIXES, sums))
        self._base = np.zeros((size, MAX_PREFIXES, sums))
        #: The vital sums, nanoseconds of the last heartbeat, and seconds paused and spilling.
        self._vitals = np.full((vitals, size), np.nan)
        self._vitals_base = np.full((vitals, size), np.nan)
        #: Seconds of all its tasks when they were last compared.
        self._compared_until = np.zeros(size)
        #: Bytes of its results.
        self._held = np.full(size, np.nan)
        #: Usual logarithm of seconds a task, by prefix, and slots that it comes from.
        self._usual = np.full((MAX_PREFIXES, size), np.nan)
        self._known = np.zeros((MAX_PREFIXES, size))
        self._group_of = np.full(size, -1, np.intp)
        self._groups: dict[Hashable, _Group] = {}
        self._kernels = KernelBook(size)

    @property
    def sees_kernels(self) -> bool:
        """Whether any worker has told of a GPU's kernels."""
        return self._kernels.any

    @property
    def capacity(self) -> int:
        """Rows that arrays have."""
        return len(self._group_of)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        arrays: list[NDArray[Any]] = [self._now, self._base, *(getattr(self, name) for name in _ARRAYS)]
        return self._kernels.nbytes + sum(array.nbytes for array in arrays)

    def row_of(self, worker: str) -> int:
        """Where a worker is in arrays."""
        return self._rows[worker].row

    def joined(self, worker: str, group: Hashable, *, at: int) -> None:
        """A worker is there; ``group`` is equal for workers that can be compared."""
        self.left(worker)
        if not self._free:
            first = self._grow()
            self._free = list(range(first, self.capacity))
        row = self._free.pop()
        self._now[row] = self._base[row] = 0.0
        self._kernels.forget(row)
        for name, empty in _ARRAYS.items():
            getattr(self, name)[..., row] = empty
        self._rows[worker] = _Row(row, group)
        if group not in self._groups:
            self._groups[group] = _Group(max((known.id for known in self._groups.values()), default=-1) + 1)
            self._groups[group].since[:] = at
        self._group_of[row] = self._groups[group].id

    def left(self, worker: str) -> None:
        """A worker is not there any more."""
        self._membership += 1
        known = self._rows.pop(worker, None)
        if known is not None:
            self._free.append(known.row)
            self._group_of[known.row] = -1
            if not (self._group_of == self._groups[known.group].id).any():
                del self._groups[known.group]

    def receive(
        self,
        worker: str,
        pace: Pace,
        *,
        at: int,
        paused: float,
        spilling: float,
        held: float,
        kernels: Sequence[KernelTotals] = (),
    ) -> None:
        """A worker's totals came; a total below the last one is that of a new beginning."""
        known = self._rows.get(worker)
        if known is None:
            return
        row = known.row
        if pace.prefixes != known.prefixes:
            self._map(known, pace.prefixes, at)
        columns = known.columns
        if len(columns):
            now = self._now[row]
            gained = pace.tasks[:, _N] - now[columns, _N]
            if gained.min() < 0:
                self._base[row, columns[gained < 0]] = 0
            self._used_at[columns[gained > 0]] = at
            now[columns] = pace.tasks
        self._receive_transfers(known, pace)
        known.running = pace.running
        self._vitals[:-3, row] = pace.vitals
        self._vitals[-3:, row] = at, paused, spilling
        self._held[row] = held
        if kernels:
            self._kernels.receive(row, kernels, at=at)

    def _receive_transfers(self, known: _Row, pace: Pace) -> None:
        if pace.senders == known.senders:
            gained = pace.transfers - known.sent
            if len(gained) and gained[:, 0].min() < 0:
                gained = np.where(gained[:, :1] < 0, pace.transfers, gained)
            known.moved = gained if known.moved is None else known.moved + gained
        else:
            # What came since the last slot from others than these is forgotten.
            before = dict(zip(known.senders, known.sent, strict=True))
            moved = {} if known.moved is None else dict(zip(known.senders, known.moved, strict=True))
            known.moved = np.zeros_like(pace.transfers)
            for i, (sender, sums) in enumerate(zip(pace.senders, pace.transfers, strict=True)):
                former = before.get(sender)
                known.moved[i] = sums - former if former is not None and former[0] <= sums[0] else sums
                known.moved[i] += moved.get(sender, 0.0)
            known.places_of = -1
        known.senders, known.sent = pace.senders, pace.transfers

    def take(self, *, at: int, learn: NDArray[np.bool_] | None = None) -> Slot:
        """What was added since the last slot, compared at once: all of :meth:`pieces`."""
        pieces = self.pieces(at=at, learn=learn)
        while True:
            try:
                next(pieces)
            except StopIteration as done:
                slot: Slot = done.value
                return slot

    def pieces(self, *, at: int, learn: NDArray[np.bool_] | None = None) -> Generator[int, None, Slot]:
        """What was added since the last slot, compared within the groups, piece by piece.

        Workers may come and go, and heartbeats arrive, between two pieces.

        Parameters
        ----------
        at
            Monotonic nanoseconds.
        learn
            By row: whether the worker is as it should be, so that its history may learn from this slot.

        Yields
        ------
        int
            How large each piece was, in numbers that were compared.
        """
        shape = len(SIGNALS), self.capacity
        residual, variance, tasks = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape)
        slot = Slot(residual, variance, tasks, *np.full((2, shape[1]), np.nan))
        vitals = self._vitals - self._vitals_base
        told = self._vitals[2] >= 0
        self._vitals_base[:] = self._vitals
        for group in list(self._groups.values()):
            rows = np.flatnonzero(self._group_of[: shape[1]] == group.id)
            yield from self._compare_tasks(slot, group, rows, at, learn)
            yield from self._add_running(slot, group, rows)
            _compare_vitals(slot, rows, vitals[:, rows], told[rows], self._held[rows])
            yield len(rows) * len(VITAL_SUMS)
            if self._kernels.any:
                found = yield from self._kernels.compare(rows)
                slot.residual[GPU_KERNEL, rows], slot.variance[GPU_KERNEL, rows], slot.tasks[GPU_KERNEL, rows] = found
        pairs = self._pairs(shape[1])
        yield 2 * len(pairs[0])
        waited = at - self._transfers_taken
        few = len(pairs[0]) and pairs[2][:, 0].sum() < MIN_TASKS * len(np.unique(pairs[0]))
        if not few or waited > MAX_WAIT_NS:
            self._take_transfers(at)
            yield from _compare_transfers(slot, *pairs, waited / 1e9)
        return slot

    # -- tasks -------------------------------------------------------------------------------

    def _compare_tasks(
        self, slot: Slot, group: _Group, rows: NDArray[np.intp], at: int, learn: NDArray[np.bool_] | None
    ) -> Iterator[int]:
        counts = (self._now[rows, :, _N] - self._base[rows, :, _N]).T
        some, ready = (counts > 0).sum(axis=1), (counts >= MIN_TASKS).sum(axis=1)
        group.since[some == 0] = at
        peers = min(MIN_PEERS, max(2, len(rows)))
        ripe = (ready >= peers) & (ready >= MIN_SHARE * some)
        late = (some >= peers) & (at - group.since > MAX_WAIT_NS)
        columns = np.flatnonzero(ripe | late)
        duration, share, on_cpu, apart = (WeightedSums.of(len(rows)) for _ in range(4))
        width = max(1, PIECE // max(1, len(rows)))
        yield len(rows)
        for first in range(0, len(columns), width):
            some_columns = columns[first : first + width]
            least = np.where(ripe[some_columns], MIN_TASKS, 1)
            self._compare_columns(group, rows, some_columns, least, learn, (duration, share, on_cpu, apart))
            group.since[some_columns] = at
            yield len(rows) * len(some_columns)
        self._forget_a_small_part(rows, (duration, share))
        for signal, sums in ((DURATION, duration), (CPU_SHARE, share)):
            slot.residual[signal, rows], slot.variance[signal, rows], slot.tasks[signal, rows] = sums.mean()
        slot.share[rows], slot.apart[rows] = on_cpu.mean()[0], apart.mean()[0]

    def _forget_a_small_part(self, rows: NDArray[np.intp], sums_of: tuple[WeightedSums, WeightedSums]) -> None:
        """Leave out workers that spent nearly all their time on what others do not do: the rest may be anything."""
        took = self._now[rows, :, _WALL].sum(axis=1)
        compared = sums_of[0].seconds
        part = compared < MIN_PART * (took - self._compared_until[rows])
        self._compared_until[rows] = np.where(compared > 0, took, self._compared_until[rows])
        for sums in sums_of:
            sums.weight[part] = 0.0

    def _compare_columns(
        self,
        group: _Group,
        rows: NDArray[np.intp],
        columns: NDArray[np.intp],
        least: NDArray[np.intp],
        learn: NDArray[np.bool_] | None,
        sums_of: tuple[WeightedSums, WeightedSums, WeightedSums, WeightedSums],
    ) -> None:
        """Compare by some prefixes, and begin to add up anew."""
        duration, share_sums, on_cpu, apart = sums_of
        picked = np.ix_(rows, columns)
        now = self._now[picked]
        sums = np.ascontiguousarray((now - self._base[picked]).T)
        self._base[picked] = now
        n = sums[_N]
        there = n >= least[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            n = np.where(there, n, np.nan)
            level, noise, power, size = _by_size(sums, n)
            others = median_of_others(level)
            group.expected[:, columns] = median_by_row(level), size, power
            residual = self._with_history(level, others, rows, columns, there, learn)
            share = np.where(there, sums[_CPU] / sums[_WALL], np.nan)
            below = median_of_others(share) - share if len(rows) >= MIN_PEERS else np.full_like(share, np.nan)
            share_noise = _pooled(sums[_SHARE], sums[_SHARE2], n)
            # What a prefix says counts by the time that its tasks would take the peers.
            weight = np.where(there, n * np.exp(np.where(np.isfinite(others), others, level)), 0.0)
            took = sums[_N], sums[_WALL]
            duration.add(residual, noise[:, None] / n * of_reference(there), weight, *took)
            share_sums.add(below, share_noise[:, None] / n * of_reference(there), weight, *took)
            on_cpu.add(share, share_noise[:, None] / n, weight, *took)
            apart.add(np.broadcast_to(noise[:, None], n.shape), np.zeros_like(n), weight, *took)

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
        are as they were stand for the rest: where none is, the work has changed, and peers can tell again.
        """
        picked = np.ix_(columns, rows)
        usual, known = self._usual[picked], self._known[picked]
        change = np.where(known >= MIN_HISTORY, level - usual, np.nan)
        told = np.isfinite(change).sum(axis=1)
        slowed = (change > math.log(1.1)).sum(axis=1)
        residual = level - others
        present = there.sum(axis=1)
        alone = present < MIN_PEERS
        residual[alone] = np.nan
        # More than half of all: of those with a history alone, two that are a little slow would do.
        unfit = (told >= 2) & (alone | (slowed > present / 2))
        for i in np.flatnonzero(unfit):
            as_before = float(np.nanquantile(change[i], 0.25 if told[i] > MIN_PEERS else 0.0))
            if alone[i] or as_before <= math.log(1.1):
                residual[i] = np.minimum(change[i], change[i] - as_before)
        fit = np.ones(len(rows), bool) if learn is None else learn[rows]
        new = there & fit[None, :]
        updated = np.where(np.isnan(usual), level, usual + LEARNING * (level - usual))
        self._usual[picked] = np.where(new, updated, usual)
        self._known[picked] = np.where(new, known + 1, known)
        return residual

    def _add_running(self, slot: Slot, group: _Group, rows: NDArray[np.intp]) -> Iterator[int]:
        """Tasks that have not ended, and have run longer than others': the least that they will take."""
        if len(rows) < MIN_PEERS:
            return
        expected = group.expected.T.tolist()
        for known in list(self._rows.values()):
            if not known.running or self._group_of[known.row] != group.id or known.row >= slot.share.size:
                continue
            beyond = weight = 0.0
            tasks = 0
            for task in known.running:
                column = self._columns.get(task.prefix)
                if column is None or task.seconds <= 0:
                    continue
                level, size, power = expected[column]
                larger = math.log1p(task.nbytes) - size
                # Of a task that is larger than any that ended nobody knows how long it takes: as much longer, then.
                power = max(power, 1.0) if larger > math.log(2.0) else power
                excess = math.log(task.seconds) - level - (power * larger if power else 0.0)
                if excess > math.log(2.0):
                    beyond += task.seconds * excess
                    weight += task.seconds
                    tasks += 1
            if tasks >= MIN_RUNNING:
                _add_censored(slot, known.row, beyond / weight)
            yield RUNNING_COST

    # -- transfers ---------------------------------------------------------------------------

    def _pairs(self, size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
        """Receivers, senders, and what moved between them since they were last compared."""
        place = {address: known.row for address, known in self._rows.items() if known.row < size}
        there = [known for known in self._rows.values() if known.moved is not None and known.row < size]
        for known in there:
            if known.places_of != self._membership:
                known.places = np.array([place.get(sender, -1) for sender in known.senders], np.intp)
                known.places_of = self._membership
        receiver = np.repeat([known.row for known in there], [len(known.senders) for known in there]).astype(np.intp)
        sender = np.concatenate([np.zeros(0, np.intp), *(known.places for known in there)])
        moved = [known.moved for known in there if known.moved is not None]
        sums = np.concatenate([np.zeros((0, len(TRANSFER_SUMS))), *moved])
        some = (sender >= 0) & (sums[:, 0] > 0)
        return receiver[some], sender[some], sums[some]

    def _take_transfers(self, at: int) -> None:
        for known in self._rows.values():
            known.moved = None
        self._transfers_taken = at

    # -- arrays ------------------------------------------------------------------------------

    def _grow(self) -> int:
        size = self.capacity
        self._kernels.grow(2 * size)
        self._now, self._base = (np.concatenate([sums, np.zeros_like(sums)]) for sums in (self._now, self._base))
        for name, empty in _ARRAYS.items():
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.full_like(array, empty)], axis=-1))
        return size

    def _map(self, known: _Row, prefixes: tuple[str, ...], at: int) -> None:
        for prefix in set(known.prefixes) - set(prefixes):
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
        self._now[:, column] = self._base[:, column] = 0.0
        self._usual[column], self._known[column] = np.nan, 0.0
        for group in self._groups.values():
            group.since[column] = at
            group.expected[:, column] = np.nan
        return column


#: The arrays of a book of which workers are the last axis, and what stands there for nobody.
_ARRAYS = {
    "_vitals": np.nan,
    "_vitals_base": np.nan,
    "_held": np.nan,
    "_compared_until": 0.0,
    "_usual": np.nan,
    "_known": 0.0,
    "_group_of": -1,
}


def _add_censored(slot: Slot, row: int, excess: float) -> None:
    """Running tasks count as one task that ended now, which says less than those that did."""
    tasks = slot.tasks[DURATION, row]
    so_far = slot.residual[DURATION, row]
    if not np.isfinite(so_far):
        slot.residual[DURATION, row], slot.variance[DURATION, row] = excess, 0.25
    elif excess > so_far:
        slot.residual[DURATION, row] = (tasks * so_far + excess) / (tasks + 1)
    slot.tasks[DURATION, row] = tasks + 0.25


def _compare_vitals(slot: Slot, rows: NDArray[np.intp], gained: Floats, told: NDArray[np.bool_], held: Floats) -> None:
    seconds, nbytes, wait, cpu, of_tasks, elapsed, paused, spilling = gained
    took = elapsed / 1e9
    with np.errstate(divide="ignore", invalid="ignore"):
        known = took > 0
        cost = np.where(nbytes >= MIN_DISK_BYTES, np.log(seconds / nbytes), np.nan)
        _single(slot, DISK, rows, cost - _peers_of(cost), 0.02)
        # Who holds more than its peers spills more, and is no slower for the same work.
        fair = np.nan_to_num(np.minimum(1.0, _peers_of(held) / held), nan=1.0)
        share = np.where(known, np.clip((paused + fair * spilling) / took, 0.0, 1.0), np.nan)
        _single(slot, MEMORY, rows, share - _peers_of(share), 0.0025)
        # Of the time in which its threads want a core: so it does not matter how much they have to do.
        waited = np.where(known & told & (wait + cpu > MIN_RUNNABLE * took), wait / (wait + cpu), np.nan)
        _single(slot, CORE_WAIT, rows, waited - _peers_of(waited), 0.0025)
        beside = np.where(known, np.maximum(cpu - of_tasks, 0.0) / took, np.nan)
        _single(slot, BESIDE_TASKS, rows, beside - _peers_of(beside), 0.0025)


def _compare_transfers(
    slot: Slot, receiver: NDArray[np.intp], sender: NDArray[np.intp], sums: Floats, slot_seconds: float
) -> Iterator[int]:
    """What receivers and senders add to the cost of a byte, each apart from the other."""
    if not len(sums):
        return
    size = slot.share.size
    n, cost = sums[:, 0], sums[:, 1] / sums[:, 0]
    noise = float(np.median(np.maximum(sums[:, 2] / n - cost**2, 0.0))) + 0.04
    effects = yield from _two_ways(cost, n, receiver, sender, size)
    for signal, effect, end in zip((RECEIVE, SEND), effects, (receiver, sender), strict=True):
        count = np.bincount(end, weights=n, minlength=size)
        took = np.bincount(end, weights=sums[:, 3], minlength=size)
        rows = np.flatnonzero((count > 0) & (took >= MIN_TRANSFER_SHARE * slot_seconds))
        if len(rows) >= MIN_PEERS:
            level = effect[rows]
            slot.residual[signal, rows] = level - median_of_others(level[None, :])[0]
            slot.variance[signal, rows] = noise / count[rows]
            slot.tasks[signal, rows] = count[rows]


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
    # The logarithm of a mean varies by more than the mean of logarithms does, which alone follows the size: a few long
    # tasks weigh.
    whole_noise = np.minimum(noise, MAX_NOISE)
    of_size = power**2 * _pooled(sums[_SIZE], sums[_SIZE2], n)
    return level, np.maximum(noise - of_size, 1e-4) + np.expm1(whole_noise) - whole_noise, power, size


def _pooled(total: Floats, squares: Floats, n: Floats) -> Floats:
    """Variance among a worker's tasks, by prefix, from all workers together."""
    tasks = np.where(n > 1, n, np.nan)
    within = np.nansum(np.maximum(squares - total**2 / tasks, 0.0), axis=1)
    free = np.nansum(tasks - 1, axis=1)
    pooled: Floats = (within + USUAL_TASKS * USUAL_NOISE) / (free + USUAL_TASKS)
    return np.maximum(pooled, 1e-4)


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
) -> Generator[int, None, tuple[Floats, Floats]]:
    """Effects of the receiver and of the sender that together come closest to the costs of all pairs."""
    ends = [np.zeros(size), np.zeros(size)]
    middle = float(np.median(cost))
    for _ in range(SWEEPS):
        for this, other, at, of in ((0, 1, receiver, sender), (1, 0, sender, receiver)):
            left = cost - middle - ends[other][of]
            # Winsorised, so that one pair does not pass for a worker.
            left = np.clip(left, ends[this][at] - 1.5, ends[this][at] + 1.5)
            whole = np.bincount(at, weights=n, minlength=size)
            ends[this] = np.bincount(at, weights=n * left, minlength=size) / np.maximum(whole, 1e-9)
            ends[this] -= np.median(ends[this][whole > 0])
            yield len(cost) // 10
    return ends[0], ends[1]
