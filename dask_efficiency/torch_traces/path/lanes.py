"""Lanes: the threads of a region on which one thing follows the other, by number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool, Int64
from dask_efficiency.gpu.ranks import ranked
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, Events, RankTrace
from dask_efficiency.torch_traces.path.roles import named

#: What the names of operators and annotations have in them on the thread of the forward pass, and of the backward one.
FORWARD, BACKWARD = "forward", "autograd"


def pairs_ranked(first: NDArray[np.integer], second: NDArray[np.integer]) -> NDArray[np.intp]:
    """A number from 0 for each pair; equal pairs have the same, and they are in the order of the pairs."""
    _, high = ranked(first)
    low_values, low = ranked(second)
    return ranked(high * max(len(low_values), 1) + low)[1]


def by_thread(
    events: Events, rows: NDArray[np.integer], others: NDArray[np.integer]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """For each thread of some rows, the positions of what is on it among these and among others."""
    both = np.concatenate([rows, others])
    lane = pairs_ranked(events.process[both], events.thread[both])
    lane, of_others = lane[: len(rows)], lane[len(rows) :]
    for number in np.unique(lane).tolist():
        yield np.flatnonzero(lane == number), np.flatnonzero(of_others == number)


def thread_lanes(trace: RankTrace, rows: NDArray[np.integer]) -> NDArray[np.intp]:
    """A number from 0 for the thread of each row; the backward pass has that of the forward pass.

    Where one thread alone has forward operators and another one alone has autograd's, the former waits while the
    latter works, and both are one lane.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``_construct_graph_from_call_stacks``.
    """
    events = trace.events
    threads = events.thread[rows]
    forward = _only_thread(trace, rows, FORWARD)
    backward = _only_thread(trace, rows, BACKWARD)
    if forward is not None and backward is not None and forward != backward:
        threads = np.where(threads == backward, forward, threads)
    return pairs_ranked(events.process[rows], threads)


def _only_thread(trace: RankTrace, rows: NDArray[np.integer], part_of_name: str) -> int | None:
    """The thread of the operators and annotations with that in their names, if it is a single one."""
    events = trace.events
    wanted: Bool = named(trace, lambda name: part_of_name in name)[rows]
    wanted &= np.isin(events.category[rows], NAMED_BY_PROGRAMS)
    threads = np.unique(events.thread[rows][wanted])
    return int(threads[0]) if len(threads) == 1 else None


def in_one_order(*pairs: tuple[NDArray[np.integer], Int64]) -> tuple[Int64, ...]:
    """For arrays of lanes and times, numbers in the order of lanes and, within a lane, in that of the times.

    Numbers of all pairs can be compared with each other.
    """
    lowest = min((int(time.min()) for _, time in pairs if len(time)), default=0)
    span = max((int(time.max()) for _, time in pairs if len(time)), default=0) - lowest + 1
    if span * (1 + max(int(lane.max(initial=0)) for lane, _ in pairs)) < 1 << 62:
        return tuple(lane.astype(np.int64) * span + (time - lowest) for lane, time in pairs)
    known = np.unique(np.concatenate([time for _, time in pairs]))
    return tuple(lane.astype(np.int64) * len(known) + np.searchsorted(known, time) for lane, time in pairs)
