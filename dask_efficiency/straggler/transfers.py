"""TransferComparison: the effect of each worker on the time of a byte, as a receiver and as a sender."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.history import Interval
from dask_efficiency.straggler.peers import MIN_PEERS, PIECE, Floats, median_of_others
from dask_efficiency.straggler.signals import RECEIVE, SEND
from dask_efficiency.straggler.task_rates import TRANSFER_SUMS, TaskRates

#: Transfers that a receiver must have had, on average, for a comparison; it waits for them, but only so long.
MIN_TRANSFERS = 3
MAX_WAIT_NS = 60_000_000_000

#: Share of an interval that a worker's transfers must take for it to be compared.
MIN_TRANSFER_SHARE = 0.01

#: Receivers whose senders are looked up in one piece.
RECEIVERS_AT_ONCE = 250

#: How often the effects of receivers and senders are fitted to each other.
SWEEPS = 3

#: Variance of the logarithm of the time of a byte that is assumed beyond what was measured.
NOISE = 0.04


@dataclass(eq=False, slots=True)
class _Receiver:
    """A worker, and what it fetched from whom."""

    row: int
    senders: tuple[str, ...] = ()
    sums: Floats = field(default_factory=lambda: np.zeros((0, len(TRANSFER_SUMS))))
    #: What was added to the sums since they were last compared; None if nothing was.
    gained: Floats | None = None
    #: Rows of the senders, and the membership for which they hold.
    rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    membership: int = -1


class TransferComparison:
    """Keeps the totals of the transfers between workers, and compares what was added since the last comparison."""

    def __init__(self) -> None:
        self._receivers: dict[str, _Receiver] = {}
        #: Grows whenever a worker joins or leaves.
        self._membership = 0
        self._compared_at = 0

    def joined(self, worker: str, row: int) -> None:
        """A worker is there, with a row in the arrays."""
        self._membership += 1
        self._receivers[worker] = _Receiver(row)

    def left(self, worker: str) -> None:
        """A worker is not there any more."""
        self._membership += 1
        self._receivers.pop(worker, None)

    def receive(self, worker: str, rates: TaskRates) -> None:
        """Take a worker's totals in. A total that shrinks has begun anew."""
        known = self._receivers[worker]
        if rates.senders == known.senders:
            gained = rates.transfers - known.sums
            if len(gained) and gained[:, 0].min() < 0:
                gained = np.where(gained[:, :1] < 0, rates.transfers, gained)
            known.gained = gained if known.gained is None else known.gained + gained
        else:
            # What came from senders that are not among these any more is forgotten.
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
        """Compare all workers, if there were transfers enough; yields how many numbers each piece compared."""
        receiver, sender, sums = yield from self._pairs(interval.workers)
        yield len(receiver) // 10
        waited = at - self._compared_at
        few = len(receiver) and sums[:, 0].sum() < MIN_TRANSFERS * np.count_nonzero(np.bincount(receiver))
        if few and waited <= MAX_WAIT_NS:
            return
        for known in self._receivers.values():
            known.gained = None
        self._compared_at = at
        if len(sums):
            yield from _compare(interval, receiver, sender, sums, waited / 1e9)

    def _pairs(self, size: int) -> Generator[int, None, tuple[NDArray[np.intp], NDArray[np.intp], Floats]]:
        """Receivers, senders, and what moved between them since the last comparison; those that are there now."""
        receivers = list(self._receivers.values())
        pieces = [(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros((0, len(TRANSFER_SUMS))))]
        for first in range(0, len(receivers), RECEIVERS_AT_ONCE):
            pieces.append(self._some_pairs(receivers[first : first + RECEIVERS_AT_ONCE], size))
            yield PIECE
        receiver, sender, sums = (np.concatenate(part) for part in zip(*pieces, strict=True))
        return receiver, sender, sums

    def _some_pairs(self, receivers: list[_Receiver], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
        there = [known for known in receivers if known.gained is not None and known.row < size]
        for known in there:
            if known.membership != self._membership:
                senders = [self._receivers.get(sender) for sender in known.senders]
                known.rows = np.array([-1 if other is None else other.row for other in senders], np.intp)
                known.membership = self._membership
        receiver = np.repeat([known.row for known in there], [len(known.senders) for known in there]).astype(np.intp)
        sender = np.concatenate([np.zeros(0, np.intp), *(known.rows for known in there)])
        gained = [known.gained for known in there if known.gained is not None]
        sums = np.concatenate([np.zeros((0, len(TRANSFER_SUMS))), *gained])
        some = (sender >= 0) & (sender < size) & (sums[:, 0] > 0)
        return receiver[some], sender[some], sums[some]


def _compare(
    interval: Interval, receiver: NDArray[np.intp], sender: NDArray[np.intp], sums: Floats, seconds: float
) -> Iterator[int]:
    """Fit what receivers and senders add to the time of a byte, each apart from the other."""
    size = interval.workers
    n, cost = sums[:, 0], sums[:, 1] / sums[:, 0]
    yield len(cost) // 10
    noise = float(np.median(np.maximum(sums[:, 2] / n - cost**2, 0.0))) + NOISE
    yield len(cost) // 10
    effects = yield from _effects_of_ends(cost, n, receiver, sender, size)
    for signal, effect, end in zip((RECEIVE, SEND), effects, (receiver, sender), strict=True):
        count = np.bincount(end, weights=n, minlength=size)
        took = np.bincount(end, weights=sums[:, 3], minlength=size)
        rows = np.flatnonzero((count > 0) & (took >= MIN_TRANSFER_SHARE * seconds))
        if len(rows) >= MIN_PEERS:
            level = effect[rows]
            residual = level - median_of_others(level[None, :])[0]
            interval.put(signal, rows, residual, noise / count[rows], count[rows].astype(np.float64))


def _effects_of_ends(
    cost: Floats, n: Floats, receiver: NDArray[np.intp], sender: NDArray[np.intp], size: int
) -> Generator[int, None, tuple[Floats, Floats]]:
    """The effects of receivers and of senders whose sums come closest to the costs of all pairs."""
    ends = [np.zeros(size), np.zeros(size)]
    middle = float(np.median(cost))
    yield len(cost) // 10
    for _ in range(SWEEPS):
        for this, other, at, of in ((0, 1, receiver, sender), (1, 0, sender, receiver)):
            left = cost - middle - ends[other][of]
            # Winsorised, so that one pair is not taken for a worker.
            left = np.clip(left, ends[this][at] - 1.5, ends[this][at] + 1.5)
            whole = np.bincount(at, weights=n, minlength=size)
            ends[this] = np.bincount(at, weights=n * left, minlength=size) / np.maximum(whole, 1e-9)
            ends[this] -= np.median(ends[this][whole > 0])
            yield len(cost) // 10
    return ends[0], ends[1]
