"""Totals of a cluster at one instant, their difference between two instants, and the clock of its work."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dask_efficiency.accounts.buckets import Bucket, scale_down
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS

_NOT_HELD = frozenset((*FREE_BUCKETS, Bucket.NO_WORK))


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals at one instant: finalized nanoseconds by bucket, and what is running."""

    at: int
    finalized: Mapping[str, int]
    running: int
    #: Nanoseconds without outstanding work since the accounts began.
    without_work: int = 0
    #: The same with outstanding work and without any worker.
    without_workers: int = 0
    #: Parts of ``finalized`` by cause, by :data:`~dask_efficiency.accounts.causes.NAMES`.
    causes: Mapping[str, int] = field(default_factory=dict)


def between(then: Totals, now: Totals) -> dict[str, int]:
    """Subtract two totals: non-negative, with ``running``, and nothing lost.

    Where tasks that ran before ``then`` have been finalized since, their time from before ``then`` is taken out of
    the held buckets, pro rata. This is an estimate, for where no window was open on the worker.
    """
    gained = {b: ns - then.finalized.get(b, 0) for b, ns in now.finalized.items() if ns != then.finalized.get(b, 0)}
    running = now.running - then.running
    if running >= 0:
        return {**gained, str(Bucket.RUNNING): running}
    # What a departed worker seemed to run may turn out to have been free, when its final snapshot comes.
    for group in (gained.keys() - _NOT_HELD, gained.keys() & _NOT_HELD):
        buckets = sorted(group)
        whole = sum(gained[bucket] for bucket in buckets)
        scaled = scale_down([gained[bucket] for bucket in buckets], max(0, whole + running))
        gained.update(zip(buckets, scaled, strict=True))
        running = min(0, whole + running)
    return gained


#: Turns from work to none and back, and of the first worker's coming and the last one's going, that are remembered.
MAX_TURNS = 4_096


class _Turn(NamedTuple):
    """State of the clock from an instant on, and the nanoseconds of each kind up to it."""

    at: int
    outstanding: bool
    workers: bool
    without_work: int
    without_workers: int


class WorkClock:
    """Clock of the time without outstanding work, and of that with work and no worker; also at recent instants.

    Snapshots are recorded after they were taken, so the last :data:`MAX_TURNS` turns are remembered.
    """

    def __init__(self, *, at: int) -> None:
        self._turns: deque[_Turn] = deque([_Turn(at, False, False, 0, 0)], maxlen=MAX_TURNS)

    @property
    def outstanding(self) -> bool:
        """True while there is work."""
        return self._turns[-1].outstanding

    def set(self, outstanding: bool, *, at: int) -> None:
        """Set whether there is work from now on."""
        self._turn(outstanding, self._turns[-1].workers, at)

    def set_workers(self, workers: bool, *, at: int) -> None:
        """Set whether there is any worker from now on."""
        if workers is not self._turns[-1].workers:
            self._turn(self._turns[-1].outstanding, workers, at)

    def _turn(self, outstanding: bool, workers: bool, at: int) -> None:
        at = max(at, self._turns[-1].at)
        self._turns.append(_Turn(at, outstanding, workers, self.without_work(at=at), self.without_workers(at=at)))

    def without_work(self, *, at: int) -> int:
        """Nanoseconds without outstanding work until ``at``."""
        turn = self._before(at)
        since = 0 if turn.outstanding else max(0, at - turn.at)
        return turn.without_work + since

    def without_workers(self, *, at: int) -> int:
        """Nanoseconds until ``at`` in which work was outstanding and there was no worker at all."""
        turn = self._before(at)
        since = max(0, at - turn.at) if turn.outstanding and not turn.workers else 0
        return turn.without_workers + since

    def _before(self, at: int) -> _Turn:
        """Find the last turn before an instant, or the first that is remembered."""
        return next((turn for turn in reversed(self._turns) if turn.at <= at), self._turns[0])
