"""CallStacks: what each thread of a region entered and left, in order, and in what it was at that time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.lanes import in_one_order, thread_lanes


class CallStacks(NamedTuple):
    """Steps of all threads, one thread after the other; an event has two, one when it begins and one when it ends."""

    #: Row of the event, by step.
    event: Int32
    is_start: Bool
    #: Number of the thread, by step.
    lane: NDArray[np.intp]
    #: Row of the event around it, by row of the trace; missing where there is none.
    parent: Int32
    #: When it ends, by row of the trace, nanoseconds: at the latest when the event around it ends.
    stop: Int64


def call_stacks(trace: RankTrace, rows: NDArray[np.integer], has_nodes: Bool) -> CallStacks:
    """The call stacks of threads, from when events begin and end.

    Parameters
    ----------
    rows
        Events on threads that take any time, ascending.
    has_nodes
        Which of them can be on a path; the others only say what is around what.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``CallStackGraph``, whose order of events that begin or end at the same time this is:
    ends before starts, the longer one outside. We differ: an event that outlasts the one in which it began ends with
    it, while HTA takes whichever began last for the one that ends, so that their children change places.
    """
    events = trace.events
    lane = thread_lanes(trace, rows)
    start, stop = events.start[rows], events.stop[rows]
    steps = _steps(lane, start, stop)
    pairs = _pairs(steps)
    wrong = steps.event[pairs[:, 0]] != steps.event[pairs[:, 1]]
    if wrong.any():
        stop = _nested(steps, np.unique(lane[steps.event[pairs[wrong, 0]]]), lane, stop, has_nodes)
        steps = _steps(lane, start, stop)
        pairs = _pairs(steps)
    inner = steps.event[pairs[:, 0]]
    parents = np.full(len(events), MISSING, np.int32)
    around = _around(steps, pairs)
    has_parent = around != MISSING
    parents[rows[inner[has_parent]]] = rows[inner[around[has_parent]]]
    stops = events.stop.copy()
    stops[rows] = stop
    return CallStacks(rows[steps.event].astype(np.int32), steps.is_start, lane[steps.event], parents, stops)


class _Steps(NamedTuple):
    """Begins and ends in order; events are positions in the rows that were given."""

    event: NDArray[np.intp]
    is_start: Bool
    #: How many events are open with this one, from 1; the same when it begins and when it ends.
    level: Int32


def _steps(lane: NDArray[np.intp], start: Int64, stop: Int64) -> _Steps:
    begin, end = in_one_order((lane, start), (lane, stop))
    by_start = np.lexsort((-end, begin))
    begin, end = begin[by_start], end[by_start]
    # of those that end together, the one that began last is the innermost
    latest_first = np.arange(len(end))[::-1]
    by_end = latest_first[np.argsort(end[::-1], kind="stable")]
    ends = end[by_end]
    count = np.arange(len(begin))
    at_start = count + np.searchsorted(ends, begin, side="right")
    at_end = count + np.searchsorted(begin, ends, side="left")
    event = np.empty(2 * len(begin), np.intp)
    event[at_start], event[at_end] = by_start, by_start[by_end]
    is_start = np.zeros(len(event), np.bool_)
    is_start[at_start] = True
    open_after = np.cumsum(np.where(is_start, 1, -1), dtype=np.int32)
    return _Steps(event, is_start, np.where(is_start, open_after, open_after + 1).astype(np.int32))


def _pairs(steps: _Steps) -> NDArray[np.intp]:
    """Steps at which a level is entered and left again, by level and in order; shape (events, 2)."""
    level = steps.level
    if level.max(initial=0) < np.iinfo(np.int16).max:
        # numpy sorts short integers by counting them
        level = level.astype(np.int16)
    return np.argsort(level, kind="stable").reshape(-1, 2)


def _around(steps: _Steps, pairs: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each pair the position of the pair around it, or missing."""
    entered = pairs[:, 0]
    level = steps.level[entered].astype(np.int64)
    size = len(steps.event)
    key = level * size + entered
    around = np.searchsorted(key, key - size) - 1
    return np.where(level > 1, around, MISSING)


def _nested(steps: _Steps, lanes: NDArray[np.intp], lane: NDArray[np.intp], stop: Int64, has_nodes: Bool) -> Int64:
    """When events end, so that each ends in the one in which it began; on those lanes.

    An event with nodes is cut off only for another one that has them. What has none ends later instead: the function
    that enters a range, and returns while the range goes on.
    """
    changed = stop.copy()
    some = np.isin(lane[steps.event], lanes)
    ends, important = stop.tolist(), has_nodes.tolist()
    # those whose end has come while something important in them goes on, and those cut off whose end is to come.
    outlasted: set[int] = set()
    cut_off: set[int] = set()
    stack: list[int] = []
    for event, is_start in zip(steps.event[some].tolist(), steps.is_start[some].tolist(), strict=True):
        if is_start:
            stack.append(event)
        elif event in cut_off:
            cut_off.remove(event)
        elif not important[event] and _any_inside(stack, event, important):
            outlasted.add(event)
        else:
            while (inner := stack.pop()) != event:
                changed[inner] = ends[event]
                if inner not in outlasted:
                    cut_off.add(inner)
            while stack and stack[-1] in outlasted:
                changed[stack.pop()] = ends[event]
    return changed


def _any_inside(stack: list[int], event: int, important: list[bool]) -> bool:
    """Whether there is an important event above this one on the stack."""
    for inner in reversed(stack):
        if inner == event:
            return False
        if important[inner]:
            return True
    return False
