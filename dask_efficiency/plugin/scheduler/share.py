"""HeartbeatShare: which heartbeats are read, so that the polls of the scheduler take at most a share of a core."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count

#: Share of a core that polls may take: beyond, each worker's heartbeats are read less often.
MAX_SHARE = 0.015

#: What polls take is smoothed over so many seconds: a burst of workers that join changes little.
SMOOTHED_SECONDS = 20.0


class HeartbeatShare:
    """Chooses those heartbeats that are read, of workers whose turn it is longest ago first.

    Parameters
    ----------
    share
        Of a core, that polls may take.
    """

    def __init__(self, share: float = MAX_SHARE) -> None:
        self._share = share
        #: Of late, what is longer ago with less weight: heartbeats that arrived, and that were read; CPU seconds that
        #: this took, and those of the rest of the polls.
        self._arrived = self._read = self._reading_seconds = self._other_seconds = 0.0
        self._at: int | None = None
        #: By worker, its last turn; turns are numbered.
        self._turns: dict[str, int] = {}
        self._numbers = count(1)
        #: The part of a heartbeat that was still to be read at the last choice.
        self._rest = 0.0

    def every(self, longest: float) -> float:
        """Each worker's heartbeats are to be read every so many-th time on average, which is 1 to ``longest``."""
        if not self._read:
            return 1.0
        wanted = self._arrived * self._reading_seconds / self._read
        room = self._share * SMOOTHED_SECONDS - self._other_seconds
        if wanted <= room:
            return 1.0
        return max(1.0, min(longest, wanted / room if room > 0 else math.inf))

    def choose(self, arrived: Sequence[str], *, longest: float, must: Callable[[str], bool]) -> list[str]:
        """Whose heartbeats are read, of those that have arrived.

        Parameters
        ----------
        arrived
            Workers.
        longest
            At most every so many-th heartbeat of a worker is to be read on average.
        must
            Whether that of a worker cannot be left out.
        """
        every = self.every(longest)
        if every == 1:
            chosen = list(arrived)
        else:
            some = len(arrived) / every + self._rest
            waiting = sorted(arrived, key=lambda worker: self._turns.get(worker, 0))
            chosen, others = waiting[: int(some)], waiting[int(some) :]
            self._rest = some - len(chosen)
            chosen += [worker for worker in others if must(worker)]
        self._turns.update(zip(chosen, self._numbers, strict=False))
        return chosen

    def left(self, worker: str) -> None:
        """A worker is not there any more."""
        self._turns.pop(worker, None)

    def spent(self, *, at: int, arrived: int, read: int, reading_seconds: float, other_seconds: float) -> None:
        """Note what a poll took.

        Parameters
        ----------
        at
            When it was, in monotonic nanoseconds.
        arrived, read
            How many heartbeats had come since the last poll, and were read.
        reading_seconds, other_seconds
            CPU seconds that reading took, and all else.
        """
        kept = 1.0 if self._at is None else math.exp((self._at - at) / 1e9 / SMOOTHED_SECONDS)
        self._at = at
        self._arrived = kept * self._arrived + arrived
        self._read = kept * self._read + read
        self._reading_seconds = kept * self._reading_seconds + reading_seconds
        self._other_seconds = kept * self._other_seconds + other_seconds
