"""TransferComparison: compares workers by the time of a byte, as receivers and as senders."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import numpy as np

from dask_efficiency.straggler.history import MAX_WAIT_NS, Interval
from dask_efficiency.straggler.peers import (
    MIN_ALIKE,
    MIN_PEERS,
    MIN_SHARE,
    NOISE,
    PIECE,
    WORKERS_AT_ONCE,
    Floats,
    Places,
    median_of_others,
)
from dask_efficiency.straggler.signals import RECEIVE, SEND
from dask_efficiency.straggler.task_rates import TRANSFER_SUMS, TaskRates

#: Rounds of fitting levels of receivers and senders to each other; more change little.
SWEEPS = 3


@dataclass(eq=False, slots=True)
class _Receiver:
    """A worker, and what it fetched from whom."""

    row: int
    senders: tuple[str, ...] = ()
    sums: Floats = field(default_factory=lambda: np.zeros((0, len(TRANSFER_SUMS))))
    #: Growth of the sums since they were last compared; None if there was none.
    gained: Floats | None = None
    #: Rows of the senders, and the membership for which they hold.
    rows: Places = field(default_factory=lambda: np.zeros(0, np.intp))
    membership: int = -1


class TransferComparison:
    """Keeps the totals of transfers between workers, and compares their growth since the last comparison."""

    def __init__(self) -> None:
        self._receivers: dict[str, _Receiver] = {}
        #: Grows whenever a worker joins or leaves.
        self._membership = 0
        self._compared_at = 0

    def joined(self, worker: str, row: int) -> None:
        """Add a worker, with its row in the arrays."""
        self._membership += 1
        self._receivers[worker] = _Receiver(row)

    def left(self, worker: str) -> None:
        """Remove a worker."""
        self._membership += 1
        self._receivers.pop(worker, None)

    def receive(self, worker: str, rates: TaskRates) -> None:
        """Take in a worker's totals; a total that shrinks has started anew."""
        known = self._receivers[worker]
        if rates.senders == known.senders:
            gained = rates.transfers - known.sums
            if len(gained) and gained[:, 0].min() < 0:
                gained = np.where(gained[:, :1] < 0, rates.transfers, gained)
            known.gained = gained if known.gained is None else known.gained + gained
        else:
            # Transfers from senders that are not listed any more are dropped.
            before = dict(zip(known.senders, known.sums, strict=True))
            moved = {} if known.gained is None else dict(zip(known.senders, known.gained, strict=True))
            known.gained = np.zeros_like(rates.transfers)
            for i, (sender, sums) in enumerate(zip(rates.senders, rates.transfers, strict=True)):
                former = before.get(sender)
                known.gained[i] = sums - former if former is not None and former[0] <= sums[0] else sums
                known.gained[i] += moved.get(sender, 0.0)
            known.membership = -1
        known.senders, known.sums = rates.senders, rates.transfers

    def compare(self, interval: Interval, *, at: int) -> Iterator[int]:
        """Compare all workers if there were enough transfers; yields how many numbers each piece compared."""
        receiver, sender, sums = yield from self._pairs(interval.workers)
        yield len(receiver) // 10
        waited = at - self._compared_at
        few = len(receiver) and sums[:, 0].sum() < MIN_ALIKE * np.count_nonzero(np.bincount(receiver))
        if few and waited <= MAX_WAIT_NS:
            return
        for known in self._receivers.values():
            known.gained = None
        self._compared_at = at
        if len(sums):
            yield from _compare(interval, receiver, sender, sums, waited / 1e9)

    def _pairs(self, size: int) -> Generator[int, None, tuple[Places, Places, Floats]]:
        """Present receivers and senders, and what moved between them since the last comparison."""
        receivers = list(self._receivers.values())
        pieces = [self._some_pairs([], size)]
        for first in range(0, len(receivers), WORKERS_AT_ONCE):
            pieces.append(self._some_pairs(receivers[first : first + WORKERS_AT_ONCE], size))
            yield PIECE
        receiver, sender, sums = (np.concatenate(part) for part in zip(*pieces, strict=True))
        return receiver, sender, sums

    def _some_pairs(self, receivers: list[_Receiver], size: int) -> tuple[Places, Places, Floats]:
        ready = [known for known in receivers if known.gained is not None and known.row < size]
        for known in ready:
            if known.membership != self._membership:
                senders = [self._receivers.get(sender) for sender in known.senders]
                known.rows = np.array([-1 if other is None else other.row for other in senders], np.intp)
                known.membership = self._membership
        receiver = np.repeat([known.row for known in ready], [len(known.senders) for known in ready]).astype(np.intp)
        sender = np.concatenate([np.zeros(0, np.intp), *(known.rows for known in ready)])
        gained = [known.gained for known in ready if known.gained is not None]
        sums = np.concatenate([np.zeros((0, len(TRANSFER_SUMS))), *gained])
        some = (sender >= 0) & (sender < size) & (sums[:, 0] > 0)
        return receiver[some], sender[some], sums[some]


def _compare(interval: Interval, receiver: Places, sender: Places, sums: Floats, seconds: float) -> Iterator[int]:
    """Fit levels of receivers and of senders to the time of a byte."""
    size = interval.workers
    n, cost = sums[:, 0], sums[:, 1] / sums[:, 0]
    yield len(cost) // 10
    noise = float(np.median(np.maximum(sums[:, 2] / n - cost**2, 0.0))) + NOISE
    yield len(cost) // 10
    levels = yield from _levels_of_ends(cost, n, receiver, sender, size)
    for signal, levels_of_end, end in zip((RECEIVE, SEND), levels, (receiver, sender), strict=True):
        count = np.bincount(end, weights=n, minlength=size)
        took = np.bincount(end, weights=sums[:, 3], minlength=size)
        rows = np.flatnonzero((count > 0) & (took >= MIN_SHARE * seconds))
        if len(rows) >= MIN_PEERS:
            level = levels_of_end[rows]
            residual = level - median_of_others(level[None, :])[0]
            interval.put(signal, rows, residual, noise / count[rows], count[rows].astype(np.float64))


def _levels_of_ends(
    cost: Floats, n: Floats, receiver: Places, sender: Places, size: int
) -> Generator[int, None, tuple[Floats, Floats]]:
    """Levels of receivers and of senders whose sums come closest to the costs of all pairs."""
    ends = [np.zeros(size), np.zeros(size)]
    middle = float(np.median(cost))
    yield len(cost) // 10
    for _ in range(SWEEPS):
        for this, other, at, of in ((0, 1, receiver, sender), (1, 0, sender, receiver)):
            left = cost - middle - ends[other][of]
            # Winsorised, so that one slow pair does not make a worker slow.
            left = np.clip(left, ends[this][at] - 1.5, ends[this][at] + 1.5)
            whole = np.bincount(at, weights=n, minlength=size)
            ends[this] = np.bincount(at, weights=n * left, minlength=size) / np.maximum(whole, 1e-9)
            ends[this] -= np.median(ends[this][whole > 0])
            yield len(cost) // 10
    return ends[0], ends[1]
