"""The critical path of a simulated MPI program: from its end back to its start, without a gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dask_efficiency.mpi.timeline import Spent, Timeline


class Stretch(NamedTuple):
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
    kind: Spent
    rank: int
    other: int
    action: int
    nbytes: int


def critical_path(timelines: Sequence[Timeline]) -> tuple[Stretch, ...]:
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
    found: list[Stretch] = []
    while now > 0:
        timeline = timelines[rank]
        i = timeline.ending_at(now)
        kind = Spent(timeline.kinds[i])
        if kind == Spent.WAITING:
            rank = timeline.posters[i]  # whose message took no time
        elif kind == Spent.COMMUNICATION:
            start = timeline.starts[i]
            found.append(Stretch(start, now, kind, rank, timeline.others[i], timeline.actions[i], timeline.nbytes[i]))
            rank, now = timeline.posters[i], start
        else:
            start = timeline.begin(i)
            found.append(Stretch(start, now, kind, rank, -1, timeline.actions[i], 0))
            now = start
    return tuple(reversed(found))
