"""Lanes: numbers of threads, where the threads of forward and backward pass may be one; and of streams."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool, Int64
from dask_efficiency.gpu.intervals import ranked
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, Events, RankTrace
from dask_efficiency.torch_traces.path.roles import events_named

#: Parts of names of operators and annotations on the thread of the forward pass, and of the backward pass.
FORWARD, BACKWARD = "forward", "autograd"


def rank_pairs(first: NDArray[np.integer], second: NDArray[np.integer]) -> NDArray[np.intp]:
    """Rank of each pair from 0, in the order of pairs; equal pairs have the same."""
    _, high = ranked(first)
    low_values, low = ranked(second)
    return ranked(high * max(len(low_values), 1) + low)[1]


def by_thread(
    events: Events, rows: NDArray[np.integer], others: NDArray[np.integer]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """For each thread of some rows, positions of its events among these and among other rows."""
    both = np.concatenate([rows, others])
    lane = rank_pairs(events.process[both], events.thread[both])
    lane, of_others = lane[: len(rows)], lane[len(rows) :]
    for number in np.unique(lane).tolist():
        yield np.flatnonzero(lane == number), np.flatnonzero(of_others == number)


def thread_lanes(trace: RankTrace, rows: NDArray[np.integer]) -> NDArray[np.intp]:
    """Number from 0 of each row's thread; as in HTA, the thread of the backward pass has that of the forward pass.

    If only one thread has forward operators and only one other has autograd's, the former waits while the latter works.
    """
    events = trace.events
    threads = events.thread[rows]
    forward = _only_thread(trace, rows, FORWARD)
    backward = _only_thread(trace, rows, BACKWARD)
    if forward is not None and backward is not None and forward != backward:
        threads = np.where(threads == backward, forward, threads)
    return rank_pairs(events.process[rows], threads)


def _only_thread(trace: RankTrace, rows: NDArray[np.integer], part_of_name: str) -> int | None:
    """The only thread of operators and annotations with a part of a name; None if there are several, or none."""
    events = trace.events
    wanted: Bool = events_named(trace, lambda name: part_of_name in name)[rows]
    wanted &= np.isin(events.category[rows], NAMED_BY_PROGRAMS)
    threads = np.unique(events.thread[rows][wanted])
    return int(threads[0]) if len(threads) == 1 else None


def comparable_keys(*pairs: tuple[NDArray[np.integer], Int64]) -> tuple[Int64, ...]:
    """Numbers in the order of lanes, then times, for arrays of both; those of all arrays can be compared."""
    lowest = min((int(time.min()) for _, time in pairs if len(time)), default=0)
    span = max((int(time.max()) for _, time in pairs if len(time)), default=0) - lowest + 1
    if span * (1 + max(int(lane.max(initial=0)) for lane, _ in pairs)) < 1 << 62:
        return tuple(lane.astype(np.int64) * span + (time - lowest) for lane, time in pairs)
    known = np.unique(np.concatenate([time for _, time in pairs]))
    return tuple(lane.astype(np.int64) * len(known) + np.searchsorted(known, time) for lane, time in pairs)
