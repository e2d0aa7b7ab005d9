"""CallStacks: the order of events on threads; and the edges of the graph that follow from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes
from dask_efficiency.torch_traces.path.lanes import comparable_keys, thread_lanes
from dask_efficiency.torch_traces.path.roles import HOLD_THE_RUNTIMES_LOCK, events_named


class CallStacks(NamedTuple):
    """Steps by thread, then in order: each event has one for its start and one for its end."""

    #: Row of the event, by step.
    event: Int32
    is_start: Bool
    #: Number of the thread, by step.
    lane: NDArray[np.intp]
    #: By row of the trace: row of the event around it; missing where there is none.
    parent: Int32
    #: By row of the trace: its end in nanoseconds, not after that of the event around it.
    stop: Int64


def call_stacks(trace: RankTrace, rows: NDArray[np.integer], has_nodes: Bool) -> CallStacks:
    """Find the call stacks of threads from starts and ends of events, ascending rows that take any time.

    As in HTA's ``CallStackGraph``, ends come before starts at equal times, the longer event outside. But an event that
    outlasts the one in which it began ends with it, while HTA ends whichever began last, so that their children change
    places. Events without nodes cannot be on a path; they only show which event is around which.
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
    level = steps.level[pairs[:, 0]].astype(np.int64)
    key = level * len(steps.event) + pairs[:, 0]
    around = np.where(level > 1, np.searchsorted(key, key - len(steps.event)) - 1, MISSING)
    has_parent = around != MISSING
    parents[rows[inner[has_parent]]] = rows[inner[around[has_parent]]]
    stops = events.stop.copy()
    stops[rows] = stop
    return CallStacks(rows[steps.event].astype(np.int32), steps.is_start, lane[steps.event], parents, stops)


class _StackSteps(NamedTuple):
    """Starts and ends in order; events are positions in the given rows."""

    event: NDArray[np.intp]
    is_start: Bool
    #: Number of open events with this one, from 1; the same at its start and its end.
    level: Int32


def _steps(lane: NDArray[np.intp], start: Int64, stop: Int64) -> _StackSteps:
    begin, end = comparable_keys((lane, start), (lane, stop))
    by_start = np.lexsort((-end, begin))
    begin, end = begin[by_start], end[by_start]
    # of events that end together, the one that began last is the innermost
    latest_first = np.arange(len(end))[::-1]
    by_end = latest_first[np.argsort(end[::-1], kind="stable")]
    ends = end[by_end]
    count = np.arange(len(begin))
    at_start = count + np.searchsorted(ends, begin, side="right")
    at_end = count + np.searchsorted(begin, ends, side="left")
    event = np.empty(2 * len(begin), np.intp)
    event[at_start], event[at_end] = by_start, by_start[by_end]
    is_start = mask_of(at_start, len(event))
    open_after = np.cumsum(np.where(is_start, 1, -1), dtype=np.int32)
    return _StackSteps(event, is_start, np.where(is_start, open_after, open_after + 1).astype(np.int32))


def _pairs(steps: _StackSteps) -> NDArray[np.intp]:
    """Steps at which a level is entered and left again, by level, then in order; shape (events, 2)."""
    level = steps.level
    if level.max(initial=0) < np.iinfo(np.int16).max:
        # numpy sorts short integers in linear time
        level = level.astype(np.int16)
    return np.argsort(level, kind="stable").reshape(-1, 2)


def _nested(steps: _StackSteps, lanes: NDArray[np.intp], lane: NDArray[np.intp], stop: Int64, has_nodes: Bool) -> Int64:
    """Ends of events on some lanes, changed so that each ends within the event in which it began.

    An event with nodes is cut off only by another one with nodes. An event without nodes ends later instead, such as a
    function that enters a range and returns while the range goes on.
    """
    changed = stop.copy()
    some = np.isin(lane[steps.event], lanes)
    ends, important = stop.tolist(), has_nodes.tolist()
    # events that ended while an important one in them goes on, and events that were cut off and are to end later
    outlasted: set[int] = set()
    cut_off: set[int] = set()
    stack: list[int] = []
    for event, is_start in zip(steps.event[some].tolist(), steps.is_start[some].tolist(), strict=True):
        if is_start:
            stack.append(event)
        elif event in cut_off:
            cut_off.remove(event)
        elif not important[event] and any(important[inner] for inner in stack[stack.index(event) :]):
            outlasted.add(event)
        else:
            while (inner := stack.pop()) != event:
                changed[inner] = ends[event]
                if inner not in outlasted:
                    cut_off.add(inner)
            while stack and stack[-1] in outlasted:
                changed[stack.pop()] = ends[event]
    return changed


def thread_edges(stacks: CallStacks, nodes: Nodes, positions: tuple[Int32, Int32], holds: Bool, blocks: Bool) -> Edges:
    """Edges from node to node along each thread, as in HTA's ``_construct_graph_from_call_stack``.

    An edge's time belongs to the innermost event. Edges between outermost events weigh nothing, nor do edges to the end
    of a call that ``blocks``. Edges of the lock that calls ``holds`` are left to :func:`lock_edges`.
    """
    starts, stops = positions
    has_node = starts[stacks.event] != MISSING
    event, is_start, lane = stacks.event[has_node], stacks.is_start[has_node], stacks.lane[has_node]
    node = np.where(is_start, starts[event], stops[event])
    open_after = np.cumsum(np.where(is_start, 1, -1))
    shares = holds[event[:-1]] & holds[event[1:]] & (is_start[:-1] | ~is_start[1:])
    first = np.flatnonzero((lane[:-1] == lane[1:]) & ~shares)
    second = first + 1
    between = is_start[second] & (open_after[first] == 0)
    waits = ~is_start[second] & blocks[event[second]]
    source, target = node[first], node[second]
    owner = np.where(
        is_start[first], event[first], np.where(is_start[second], stacks.parent[event[first]], event[second])
    )
    kind = np.where(between, EdgeKind.DEPENDENCY, EdgeKind.OPERATOR)
    weight = np.where(between | waits, 0, nodes.at[target] - nodes.at[source])
    return Edges.of(source, target, kind, weight, np.where(between, MISSING, owner))


def holds_lock(trace: RankTrace) -> Bool:
    """Mask of calls that hold the lock of CUDA's runtime."""
    return trace.events.is_call & events_named(trace, lambda name: name in HOLD_THE_RUNTIMES_LOCK)


def lock_edges(nodes: Nodes, holds: Bool, lane: NDArray[np.integer]) -> Edges:
    """Edges of the runtime's lock: from each start of a call that ``holds`` it to the next end, and between ends.

    As in HTA's ``_construct_graph_from_cuda_runtime_events``, of calls that overlap, the one that ended first had the
    lock first. But a call that begins as another one of its thread ends comes after it, whatever their rows.
    """
    of_lock = np.flatnonzero(holds[nodes.event])
    is_start = nodes.is_start[of_lock]
    ends = np.flatnonzero(~is_start)
    begins = np.flatnonzero(is_start)
    at, thread = nodes.at[of_lock], lane[nodes.event[of_lock]]
    # every call ends after its start, so there is a next end
    number = np.searchsorted(ends, begins)
    while (before := (at[ends[number]] == at[begins]) & (thread[ends[number]] == thread[begins])).any():
        number[before] += 1
    next_end = ends[number]
    # of several starts before one end, the last comes first
    begins, next_end = begins[::-1], next_end[::-1]
    same = nodes.event[of_lock[begins]] == nodes.event[of_lock[next_end]]
    after_end = ends[(ends > 0) & ~is_start[ends - 1]]
    source = of_lock[np.concatenate([begins, after_end - 1])]
    target = of_lock[np.concatenate([next_end, after_end])]
    own = np.concatenate([same, np.zeros(len(after_end), np.bool_)])
    kind = np.where(own, EdgeKind.OPERATOR, EdgeKind.DEPENDENCY)
    weight = np.where(own, nodes.at[target] - nodes.at[source], 0)
    return Edges.of(source, target, kind, weight, np.where(own, nodes.event[target], MISSING))
