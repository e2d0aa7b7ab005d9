"""Timelines: what each rank spends its time on, and the critical path through them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class RankActivity(IntEnum):
    """What a rank does."""

    COMPUTE = 0
    #: Sends, receives: what the library's own work takes.
    OVERHEAD = 1
    #: Bytes that it waits for are under way, or bytes that it sends.
    COMMUNICATION = 2
    #: The other rank is not there yet.
    WAITING = 3


@dataclass(slots=True)
class RankTimeline:
    """Intervals of one rank, one after the other from 0: columns of equal length.

    Parameters
    ----------
    ends
        Nanoseconds; an interval begins where the one before ends.
    kinds
        :class:`RankActivity`.
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
        self,
        kind: RankActivity,
        end: int,
        action: int,
        other: int = -1,
        poster: int = -1,
        start: int = 0,
        nbytes: int = 0,
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


class MpiStretch(NamedTuple):
    """A part of the critical path.

    Parameters
    ----------
    start, end
        Nanoseconds.
    kind
        What it is spent on; never waiting.
    rank
        Who computes, or who waits for the bytes.
    other
        Of communication: the other rank, else -1.
    action
        The position among the rank's actions.
    nbytes
        Of communication.
    """

    start: int
    end: int
    kind: RankActivity
    rank: int
    other: int
    action: int
    nbytes: int


def critical_path(timelines: Sequence[RankTimeline]) -> tuple[MpiStretch, ...]:
    """The stretches that the end of a run hangs on, in the order of time; they tile the makespan.

    Of computation, the path goes to what the same rank did before. Of a message, to when it could go, and on with the
    rank that came last: the sender, or the receiver that had not asked. So nothing on it waits.

    Parameters
    ----------
    timelines
        By rank.

    References
    ----------
    Böhme et al., Scalable Critical-Path Based Performance Analysis, IPDPS 2012: the reverse walk over a trace, as
    Scalasca does it.
    """
    if not timelines:
        return ()
    rank = max(range(len(timelines)), key=lambda number: timelines[number].end)
    now = timelines[rank].end
    found: list[MpiStretch] = []
    while now > 0:
        timeline = timelines[rank]
        i = timeline.ending_at(now)
        kind = RankActivity(timeline.kinds[i])
        if kind == RankActivity.WAITING:
            rank = timeline.posters[i]  # whose message took no time
        elif kind == RankActivity.COMMUNICATION:
            start = timeline.starts[i]
            found.append(
                MpiStretch(start, now, kind, rank, timeline.others[i], timeline.actions[i], timeline.nbytes[i])
            )
            rank, now = timeline.posters[i], start
        else:
            start = timeline.begin(i)
            found.append(MpiStretch(start, now, kind, rank, -1, timeline.actions[i], 0))
            now = start
    return tuple(reversed(found))
