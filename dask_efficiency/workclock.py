"""WorkClock: how long a cluster had no outstanding work, and how long it had work and no worker."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

#: Turns from work to none and back, and of the first worker's coming and the last one's going, that are remembered.
MAX_TURNS = 4_096


class _Turn(NamedTuple):
    """What holds from an instant on, and the nanoseconds of each kind until then."""

    at: int
    outstanding: bool
    workers: bool
    without_work: int
    without_workers: int


class WorkClock:
    """How long there was no outstanding work, or work and no worker: in nanoseconds, now and at any instant of late.

    Snapshots are booked after they were taken; so the last :data:`MAX_TURNS` turns are remembered.
    """

    def __init__(self, *, at: int, outstanding: bool = False, workers: bool = False) -> None:
        self._turns: deque[_Turn] = deque([_Turn(at, outstanding, workers, 0, 0)], maxlen=MAX_TURNS)

    @property
    def outstanding(self) -> bool:
        """Whether there is work now."""
        return self._turns[-1].outstanding

    def set(self, outstanding: bool, *, at: int) -> None:
        """There is work from now on, or none."""
        self._turn(outstanding, self._turns[-1].workers, at)

    def set_workers(self, workers: bool, *, at: int) -> None:
        """There is a worker from now on, or none."""
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
        """The last turn before an instant; of one that is forgotten, the first that is known."""
        return next((turn for turn in reversed(self._turns) if turn.at <= at), self._turns[0])
