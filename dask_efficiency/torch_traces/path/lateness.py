"""Lateness: what the rank that came last to a collective had done more of than its peers."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Int64
from dask_efficiency.torch_traces.kineto.lookup import first_with
from dask_efficiency.torch_traces.path.clocks import each, last_arrivals
from dask_efficiency.torch_traces.path.collectives import Arrivals
from dask_efficiency.torch_traces.path.occupation import Occupation, time_before
from dask_efficiency.torch_traces.path.steps import Steps


class Cause(IntEnum):
    """Why a rank comes later than its peers: what it did more of since all of them were together."""

    #: Nothing, before it began its step or its trace.
    LATE_START = 0
    #: Its operators or its kernels took longer, or were more.
    COMPUTE = 1
    #: It took its next batch.
    DATA_LOADING = 2
    #: It exchanged data, with all of them or with others, or waited for those.
    COMMUNICATION = 3
    #: Nothing that the trace shows: Python, collecting garbage, waiting for a core or a lock, sleeping.
    UNKNOWN = 4

    @property
    def label(self) -> str:
        """As it is written for people."""
        return self.name.lower().replace("_", "-")


def since_together(arrivals: Arrivals, offset: Int64, occupations: Sequence[Occupation]) -> Int64:
    """For each collective, from when on its ranks are compared, on the clock of the job.

    It is the instant at which the last rank came to the last collective before in which all of them were together; for
    the first ones, when the first of their traces began.
    """
    begins = arrivals.begins
    last = last_arrivals(arrivals, offset)
    start = arrivals.start + offset[arrivals.rank]
    earliest = np.minimum.reduceat(start, begins) if len(begins) else begins
    groups: dict[frozenset[int], int] = {}
    members = (frozenset(ranks.tolist()) for ranks in np.split(arrivals.rank, begins[1:]) if len(ranks))
    group = np.array([groups.setdefault(ranks, len(groups)) for ranks in members], np.int64)
    together = arrivals.together[begins]
    first = {rank: one.first + int(offset[rank]) for rank, one in enumerate(occupations)}
    since = np.empty(len(begins), np.int64)
    for ranks, number in groups.items():
        mine = group == number
        of_all = np.isin(group, [other for others, other in groups.items() if ranks <= others]) & together
        turns = np.sort(last[of_all])
        before = np.searchsorted(turns, earliest[mine])
        since[mine] = np.concatenate([[min(first[rank] for rank in ranks)], turns])[before]
    return since


def pieces(
    arrivals: Arrivals, offset: Int64, since: Int64, occupations: Sequence[Occupation], steps: Sequence[Steps]
) -> NDArray[np.int64]:
    """What each rank did between since all were together and its arrival.

    Parameters
    ----------
    arrivals
        Who came when.
    offset, occupations, steps
        Of each rank.
    since
        Of each collective, on the clock of the job.

    Returns
    -------
    array, shape (rows of ``arrivals``, causes)
        Nanoseconds; the sum over causes is the time in between.
    """
    found = np.zeros((len(arrivals), len(Cause)), np.int64)
    begin = each(arrivals, since) - offset[arrivals.rank]
    for rank, (occupation, own) in enumerate(zip(occupations, steps, strict=True)):
        rows = np.flatnonzero(arrivals.rank == rank)
        start, stop = begin[rows], arrivals.start[rows]
        known = np.zeros(len(rows), np.int64)
        before_step = np.zeros(len(rows), np.int64)
        began = np.clip(_began(own, arrivals.step[rows], occupation.first), start, stop)
        for cause, intervals in (
            (Cause.COMPUTE, occupation.compute),
            (Cause.DATA_LOADING, occupation.data_loading),
            (Cause.COMMUNICATION, occupation.communication),
        ):
            until = time_before(intervals, start)
            found[rows, cause] = time_before(intervals, stop) - until
            known += found[rows, cause]
            before_step += time_before(intervals, began) - until
        found[rows, Cause.LATE_START] = began - start - before_step
        found[rows, Cause.UNKNOWN] = stop - start - known - found[rows, Cause.LATE_START]
    return found


def _began(steps: Steps, step: NDArray[np.int32], first: int) -> Int64:
    """When the rank began each step; its trace, where there is no step."""
    return np.append(steps.start, first)[first_with(steps.number, step)]


def excess(arrivals: Arrivals, rows: NDArray[np.intp], found: NDArray[np.int64]) -> NDArray[np.int64]:
    """How much more of each cause some ranks had than the median of the others, one rank of each collective.

    Parameters
    ----------
    arrivals
        Who took part.
    rows
        Of each collective the row of the rank.
    found
        What :func:`pieces` returned.

    Returns
    -------
    array, shape (collectives, causes)
        Nanoseconds; negative where the rank did less.
    """
    others = np.ones(len(arrivals), np.bool_)
    others[rows] = False
    bounds = [*arrivals.begins.tolist(), len(arrivals)]
    usual = np.zeros((len(rows), len(Cause)))
    for number, (first, last) in enumerate(pairwise(bounds)):
        usual[number] = np.median(found[first:last][others[first:last]], axis=0)
    return found[rows] - usual.astype(np.int64)
