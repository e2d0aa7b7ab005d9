"""RankTimeline: the activities of a rank over time; and the critical path through those of all ranks."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class RankActivity(IntEnum):
    """Activity of a rank."""

    COMPUTE = 0
    #: The library's own work for sends and receives.
    OVERHEAD = 1
    #: Bytes that it waits for, or sends, are under way.
    COMMUNICATION = 2
    #: The other rank is not ready yet.
    WAITING = 3


@dataclass(slots=True)
class RankTimeline:
    """Consecutive intervals of one rank from 0, in columns of equal length."""

    #: Nanoseconds; an interval begins where the one before ends.
    ends: array[int] = field(default_factory=lambda: array("q"))
    #: :class:`RankActivity`.
    kinds: array[int] = field(default_factory=lambda: array("B"))
    #: Position of its action.
    actions: array[int] = field(default_factory=lambda: array("I"))
    #: ``COMMUNICATION`` and ``WAITING``: the other rank, and the rank that was ready last; else -1.
    others: array[int] = field(default_factory=lambda: array("i"))
    posters: array[int] = field(default_factory=lambda: array("i"))
    #: ``COMMUNICATION``: instant at which the message could start, which may be before the interval; and its size.
    starts: array[int] = field(default_factory=lambda: array("q"))
    nbytes: array[int] = field(default_factory=lambda: array("q"))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def end(self) -> int:
        """End of the last interval."""
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
        """Append an interval, unless it has no length."""
        if end > self.end:
            self.ends.append(end)
            self.kinds.append(kind)
            self.actions.append(action)
            self.others.append(other)
            self.posters.append(poster)
            self.starts.append(start)
            self.nbytes.append(nbytes)

    def begin(self, i: int) -> int:
        """Start of an interval."""
        return self.ends[i - 1] if i else 0


class MpiStretch(NamedTuple):
    """A part of the critical path, from a nanosecond to another: never waiting."""

    start: int
    end: int
    kind: RankActivity
    #: Rank that computes or waits for the bytes; the other rank of a communication, else -1.
    rank: int
    other: int
    #: Position among the rank's actions.
    action: int
    nbytes: int


def critical_path(timelines: Sequence[RankTimeline]) -> tuple[MpiStretch, ...]:
    """Find the critical path of a run: stretches in order of time that tile its makespan, none of which waits.

    From a message, it goes to the instant at which that could start, on the rank that was ready last. Source: Böhme et
    al., Scalable Critical-Path Based Performance Analysis, IPDPS 2012.
    """
    rank = max(range(len(timelines)), key=lambda number: timelines[number].end, default=0)
    now = timelines[rank].end if timelines else 0
    stretches: list[MpiStretch] = []
    while now > 0:
        timeline = timelines[rank]
        i = bisect_left(timeline.ends, now)
        kind, poster = RankActivity(timeline.kinds[i]), timeline.posters[i]
        if kind == RankActivity.WAITING:
            rank = poster  # its message took no time
            continue
        start = timeline.starts[i] if kind == RankActivity.COMMUNICATION else timeline.begin(i)
        stretches.append(
            MpiStretch(start, now, kind, rank, timeline.others[i], timeline.actions[i], timeline.nbytes[i])
        )
        rank, now = poster if kind == RankActivity.COMMUNICATION else rank, start
    return tuple(reversed(stretches))
