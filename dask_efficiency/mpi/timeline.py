"""Timeline: what each rank spends its time on, interval by interval, in columns."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import IntEnum


class Spent(IntEnum):
    """What a rank does."""

    COMPUTE = 0
    #: Sends, receives: what the library's own work takes.
    OVERHEAD = 1
    #: Bytes that it waits for are under way, or bytes that it sends.
    COMMUNICATION = 2
    #: The other rank is not there yet.
    WAITING = 3


@dataclass(slots=True)
class Timeline:
    """Intervals of one rank, one after the other from 0: columns of equal length.

    Parameters
    ----------
    ends
        Nanoseconds; an interval begins where the one before ends.
    kinds
        :class:`Spent`.
    actions
        What it was doing: the position among its actions.
    others
        Of ``COMMUNICATION`` and ``WAITING``: the other rank; else -1.
    posters
        Of both: which of the two ranks came last, so that the message could go.
    starts
        Of ``COMMUNICATION``: when it could go, which may be before the interval.
    nbytes
        Of ``COMMUNICATION``: the message's.
    """

    ends: array[int] = field(default_factory=lambda: array("q"))
    kinds: array[int] = field(default_factory=lambda: array("B"))
    actions: array[int] = field(default_factory=lambda: array("I"))
    others: array[int] = field(default_factory=lambda: array("i"))
    posters: array[int] = field(default_factory=lambda: array("i"))
    starts: array[int] = field(default_factory=lambda: array("q"))
    nbytes: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def end(self) -> int:
        """Where the last interval ends."""
        return self.ends[-1] if self.ends else 0

    def add(
        self, kind: Spent, end: int, action: int, other: int = -1, poster: int = -1, start: int = 0, nbytes: int = 0
    ) -> None:
        """One more interval; one of no length is left out."""
        if end <= self.end:
            return
        self.ends.append(end)
        self.kinds.append(kind)
        self.actions.append(action)
        self.others.append(other)
        self.posters.append(poster)
        self.starts.append(start)
        self.nbytes.append(nbytes)

    def begin(self, i: int) -> int:
        """Where an interval begins."""
        return self.ends[i - 1] if i else 0

    def ending_at(self, instant: int) -> int:
        """The interval that contains an instant or ends there; -1 at the very beginning."""
        return bisect_left(self.ends, instant) if instant > 0 and self.ends else -1
