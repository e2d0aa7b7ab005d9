"""Tiles a window of a torch trace: walks backwards from its end, from each instant to what it waited for last."""

from __future__ import annotations

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int8, Int32, Int64
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import CALLS, Category
from dask_efficiency.torch_traces.path.causes import Causes, last_causes
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.instants import Instants, stably
from dask_efficiency.torch_traces.path.loading import Pieces, with_loading
from dask_efficiency.torch_traces.path.ordering import places_in
from dask_efficiency.torch_traces.path.roles import own_kinds
from dask_efficiency.torch_traces.path.stretches import Stretches

#: Events that can close a window on a thread.
_CLOSES = (Category.ANNOTATION, Category.OPERATOR, Category.PYTHON)


def tile(graph: TorchGraph) -> Stretches:
    """The critical path of a window, as stretches that tile it exactly.

    The walk begins at the end of the window: on the thread of the annotation that closes it, or with whatever ended
    last. From the end of a call that waited for the GPU it goes to the work that it waited for, from the start of work
    to the work before it or to the call that asked for it, whichever was later, and along threads from each operator
    to the one before. An idle thread waited for autograd's thread or for a collective on the CPU, if there was one.

    Returns
    -------
    Stretches
        Contiguous, in time order, from the region's start to its stop. Time of a thread between operators is
        ``compute-cpu`` without an event. ``kernel-launch`` and ``kernel-gap`` have the event whose start was waited
        for. The rank is 0, for the position of the only rank.
    """
    region = graph.region
    instants = Instants.of(graph)
    causes = last_causes(graph, instants)
    path = _walk(causes, instants, last_instant(graph, instants), region.start)
    pieces = with_loading(graph, pieces_along(graph, instants, causes, own_kinds(graph.trace), path))
    return Stretches.between(
        pieces.bounds,
        kind=pieces.kind,
        rank=np.zeros(len(pieces.kind), np.int32),
        event=pieces.event,
        inferred=pieces.inferred,
    )


def last_instant(graph: TorchGraph, instants: Instants) -> int:
    """Where the walk begins; missing if nothing is known of the window."""
    stop, events = graph.region.stop, graph.trace.events
    inside = int(np.searchsorted(instants.at, stop, side="right"))
    closing = events.stop == stop
    closing &= np.isin(events.category, _CLOSES)
    rows = np.flatnonzero(closing)
    # The longest one, as an annotation is longer than what is in it.
    for row in rows[np.argsort(events.start[rows], kind="stable")].tolist():
        same = events.process[instants.event[:inside]] == events.process[row]
        same &= (events.thread[instants.event[:inside]] == events.thread[row]) & ~instants.on_gpu[:inside]
        if same.any():
            return int(np.flatnonzero(same)[-1])
    working = np.flatnonzero(instants.working[:inside])
    return int(working[-1]) if len(working) else inside - 1


def _walk(causes: Causes, instants: Instants, last: int, start: int) -> Int64:
    """Positions from the end of the window to one that is not after its start, or has no cause."""
    if last == MISSING:
        return np.empty(0, np.int64)
    # Instants that waited for the one before them on their thread or stream are passed through in one step.
    order = stably(instants.lane)
    place = places_in(order)
    leads = np.append(True, causes.cause[order[1:]] != order[:-1])
    lead = np.maximum.accumulate(np.where(leads, np.arange(len(order)), 0))
    until = int(np.searchsorted(instants.at, start, side="right"))
    runs, at = [], last
    while at != MISSING:
        first = lead[place[at]]
        runs.append(order[first : place[at] + 1][::-1])
        if order[first] < until:
            break
        at = int(causes.cause[order[first]])
    return np.concatenate(runs).astype(np.int64)


def pieces_along(graph: TorchGraph, instants: Instants, causes: Causes, own: Int8, path: Int64) -> Pieces:
    """The time between the instants of a path, and before and after them, with what it was spent on."""
    region = graph.region
    if not len(path):
        return _nothing_known(graph)
    later, earlier = path[:-1], path[1:]
    # From the end of the window to its start.
    parts = [
        _after(own, instants, path[:1]),
        _between(graph, own, instants, earlier, later),
        _before(graph, instants, path[-1:]),
    ]
    kind, event, thread = (np.concatenate(columns)[::-1] for columns in zip(*parts, strict=True))
    bounds = np.concatenate([[region.stop], instants.at[path], [region.start]])[::-1]
    # A piece was come to by its own step and, at its end, by the one after it.
    guessed = np.concatenate([[False], causes.inferred[later], [False]])
    guessed[1:] |= guessed[:-1]
    return Pieces(np.clip(bounds, region.start, region.stop), kind, event, guessed[::-1], thread)


_Columns = tuple[Int8, Int32, Int32]


def _between(graph: TorchGraph, own: Int8, instants: Instants, earlier: Int64, later: Int64) -> _Columns:
    """What the time between instants and their causes was spent on, whose it is, and on whose thread."""
    from_gpu, to_gpu = instants.on_gpu[earlier], instants.on_gpu[later]
    from_start, to_start = instants.is_start[earlier], instants.is_start[later]
    along = ~from_gpu & ~to_gpu & (instants.lane[earlier] == instants.lane[later])
    across = ~from_gpu & ~to_gpu & ~along
    event = instants.event[later].copy()
    # Along a thread it is the time of whatever is open; from one to another, of what is open on the first one all the
    # time, or else of the call that waited for a lock.
    event[along] = instants.innermost[earlier[along]]
    event[across & to_start] = _still_open(graph, instants, earlier, later)[across & to_start]
    # Work that ran on is what was waited for.
    runs_on = from_gpu & from_start
    event[runs_on] = instants.event[earlier[runs_on]]
    kind = np.where(event == MISSING, KINDS.index(Kind.COMPUTE_CPU), own[event])
    kind[from_gpu & ~from_start & ~to_gpu] = KINDS.index(Kind.GPU_SYNC)
    kind[from_gpu & ~from_start & to_gpu] = KINDS.index(Kind.KERNEL_GAP)
    kind[~from_gpu & to_gpu] = KINDS.index(Kind.KERNEL_LAUNCH)
    return kind.astype(np.int8), event, np.where(to_gpu, MISSING, instants.event[later])


def _still_open(graph: TorchGraph, instants: Instants, earlier: Int64, later: Int64) -> Int32:
    """What operator is open on a thread from one instant to another one."""
    events, row = graph.trace.events, instants.innermost[earlier]
    is_open = (events.stop[row] >= instants.at[later]) & ~np.isin(events.category[row], CALLS)
    return np.where(is_open, row, MISSING)


def _after(own: Int8, instants: Instants, last: Int64) -> _Columns:
    """What is after the last instant of a path: the time of whatever is still open on its thread."""
    on_gpu, event = instants.on_gpu[last], instants.event[last]
    row = np.where(on_gpu, np.where(instants.is_start[last], event, MISSING), instants.innermost[last])
    kind = np.where(row == MISSING, KINDS.index(Kind.COMPUTE_CPU), own[row])
    return kind.astype(np.int8), row.astype(np.int32), np.where(on_gpu, MISSING, event).astype(np.int32)


def _before(graph: TorchGraph, instants: Instants, first: Int64) -> _Columns:
    """What is before the first instant of a path: the time of its thread, or of a launch before the window."""
    event = instants.event[first]
    on_gpu, asked_for = instants.on_gpu[first], graph.trace.events.call[event] != MISSING
    kind = np.where(on_gpu & asked_for, KINDS.index(Kind.KERNEL_LAUNCH), KINDS.index(Kind.COMPUTE_CPU))
    kind[on_gpu & ~asked_for] = KINDS.index(Kind.UNATTRIBUTED)
    row = np.where(on_gpu & asked_for, event, MISSING)
    return kind.astype(np.int8), row.astype(np.int32), np.where(on_gpu, MISSING, event).astype(np.int32)


def _nothing_known(graph: TorchGraph) -> Pieces:
    missing = np.array([MISSING], np.int32)
    bounds = np.array([graph.region.start, graph.region.stop])
    return Pieces(bounds, np.array([KINDS.index(Kind.UNATTRIBUTED)], np.int8), missing, np.zeros(1, bool), missing)
