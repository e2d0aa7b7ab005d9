"""WorkClock: how long a cluster had no outstanding work, now and at any instant of late."""

from __future__ import annotations

from collections import deque

#: Turns from work to none and back that the work clock remembers.
MAX_TURNS = 4_096


class WorkClock:
    """How long there was no outstanding work, in nanoseconds, now and at any instant of late.

    Snapshots are booked after they were taken; so the last :data:`MAX_TURNS` turns are remembered.
    """

    def __init__(self, *, at: int, outstanding: bool = False) -> None:
        #: (from when on, whether there is work, nanoseconds without until then), oldest first.
        self._turns: deque[tuple[int, bool, int]] = deque([(at, outstanding, 0)], maxlen=MAX_TURNS)

    @property
    def outstanding(self) -> bool:
        """Whether there is work now."""
        return self._turns[-1][1]

    def set(self, outstanding: bool, *, at: int) -> None:
        """There is work from now on, or none."""
        at = max(at, self._turns[-1][0])
        self._turns.append((at, outstanding, self.without_work(at=at)))

    def without_work(self, *, at: int) -> int:
        """Nanoseconds without outstanding work until ``at``."""
        for since, outstanding, without in reversed(self._turns):
            if since <= at:
                return without if outstanding else without + at - since
        return self._turns[0][2]
