"""Instants: starts and ends that a walk can pass through, ordered so that causes come before effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import Category, Events
from dask_efficiency.torch_traces.path.graph import TorchGraph, starts_and_stops
from dask_efficiency.torch_traces.path.lanes import rank_pairs
from dask_efficiency.torch_traces.path.roles import cpu_collectives

#: Categories of events outside of threads and streams, which no walk passes through.
_ELSEWHERE = (Category.SYNC, Category.GPU_ANNOTATION)

#: Order of equal instants: work on a GPU ends before the calls that wait for it, and these before whatever starts next.
#: Events without length (BOTH) come between ends and starts.
_GPU_END, _GPU_BOTH, _CPU_END, _CPU_BOTH, _CPU_START, _GPU_START = range(6)


@dataclass(frozen=True, slots=True)
class Instants:
    """A row for each start and end, in order of time; where times are equal, causes come before effects.

    They belong to the graph's nodes, and to work that can explain a wait without being in the graph: work on a GPU that
    was asked for before the window, and collectives on the CPU's own threads.
    """

    #: In nanoseconds, and the row of the event.
    at: Int64
    event: Int32
    is_start: Bool
    on_gpu: Bool
    #: Number of its thread, or of its stream on its device.
    lane: Int32
    #: True on a GPU, or on a thread with operators, launches or collectives; other threads only ask about a GPU.
    working: Bool
    #: Position of the other end of its event.
    partner: Int32
    #: Position of the instant before on its thread; for work on a GPU, of its start or of the work before it.
    before: Int32
    #: On a thread, the number of events open right after it, and the row of the innermost; missing if there is none.
    depth: Int32
    innermost: Int32
    #: By node of the graph, the position here; missing for nodes outside of threads and streams.
    of_node: Int32

    @classmethod
    def of(cls, graph: TorchGraph) -> Self:
        """Instants of a graph, and of other events in its window that can explain a wait."""
        events, nodes = graph.trace.events, graph.nodes
        more = _beside(graph)
        event = np.concatenate([nodes.event, more, more])
        is_start = np.concatenate([nodes.is_start, np.ones(len(more), bool), np.zeros(len(more), bool)])
        at = np.concatenate([nodes.at, events.start[more], events.stop[more]])
        kept = ~np.isin(events.category[event], _ELSEWHERE)
        on_gpu = events.is_gpu_work[event]
        order = _in_order(at, event, is_start, on_gpu)
        order = order[kept[order]]
        of_node = np.full(len(event), MISSING, np.int32)
        of_node[order] = np.arange(len(order), dtype=np.int32)
        at, event, is_start, on_gpu = at[order], event[order], is_start[order], on_gpu[order]
        lane = _lanes(events)[event]
        starts, stops = starts_and_stops(event, is_start, len(events))
        partner = np.where(is_start, stops[event], starts[event])
        before, depth, innermost = _along_threads(lane, event, is_start, on_gpu)
        _along_streams(before, lane, partner, is_start, on_gpu)
        works = (events.category == Category.OPERATOR) | cpu_collectives(graph.trace)
        works[events.call[events.is_gpu_work & events.has_call]] = True
        at_work: Bool = np.bincount(lane[works[event]], minlength=int(lane.max(initial=-1)) + 1) > 0
        working = on_gpu | at_work[lane]
        return cls(at, event, is_start, on_gpu, lane, working, partner, before, depth, innermost, of_node[: len(nodes)])

    def __len__(self) -> int:
        return len(self.at)


def _beside(graph: TorchGraph) -> Int32:
    """Rows of events outside of the graph that can explain a wait in its window."""
    trace, region = graph.trace, graph.region
    events = trace.events
    wanted = events.is_gpu_work | cpu_collectives(trace)
    wanted &= (events.start < region.stop) & (events.stop > region.start)
    wanted[graph.nodes.event] = False
    return np.flatnonzero(wanted).astype(np.int32)


def _in_order(at: Int64, event: Int32, is_start: Bool, on_gpu: Bool) -> Int64:
    order = np.argsort(at, kind="stable")
    equal = at[order[1:]] == at[order[:-1]]
    places = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    members = order[places]
    order[places] = members[_ties(at, event, is_start, on_gpu, members)]
    return order


def _ties(at: Int64, event: Int32, is_start: Bool, on_gpu: Bool, members: Int64) -> Int64:
    """Order of instants some of which are equal: outer events start first and end last."""
    bounds = np.zeros((2, int(event.max(initial=0)) + 1), np.int64)
    bounds[0, event[is_start]], bounds[1, event[~is_start]] = at[is_start], at[~is_start]
    starts, stops = bounds[:, event[members]]
    row, start = event[members].astype(np.int64), is_start[members]
    gpu, both = on_gpu[members], starts == stops
    phase = np.where(gpu, np.where(start, _GPU_START, _GPU_END), np.where(start, _CPU_START, _CPU_END))
    phase[both] = np.where(gpu[both], _GPU_BOTH, _CPU_BOTH)
    first = np.where(both, row, np.where(start, -stops, -starts))
    second = np.where(both, ~start, np.where(start, row, -row))
    ranks: Int64 = np.lexsort((second, first, phase, at[members]))
    return ranks


def _lanes(events: Events) -> Int32:
    """By row, the number of its thread in its process, or of its stream on its device."""
    on_gpu = events.is_gpu_work
    first = np.where(on_gpu, events.device, events.process)
    second = np.where(on_gpu, events.stream, events.thread)
    # In files, many rows of one thread follow one another.
    changes = (first[1:] != first[:-1]) | (second[1:] != second[:-1]) | (on_gpu[1:] != on_gpu[:-1])
    runs = np.flatnonzero(np.append(True, changes)[: len(first)])
    lane = rank_pairs(rank_pairs(first[runs], second[runs]), on_gpu[runs].astype(np.int8))
    return np.repeat(lane.astype(np.int32), np.diff(np.append(runs, len(first))))


def _along_threads(lane: Int32, event: Int32, is_start: Bool, on_gpu: Bool) -> tuple[Int32, Int32, Int32]:
    """By instant on a thread: the one before it, the number of events open after it, and the innermost of these."""
    before, depth, innermost = (np.full(len(lane), MISSING, np.int32) for _ in range(3))
    cpu = np.flatnonzero(~on_gpu)
    order = cpu[stable_order(lane[cpu])]
    same = lane[order[1:]] == lane[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    if not len(order):
        return before, depth, innermost
    first = np.flatnonzero(np.append(True, ~same))
    height = np.cumsum(np.where(is_start[order], 1, -1))
    height -= np.repeat(height[first] - np.where(is_start[order[first]], 1, -1), np.diff(np.append(first, len(order))))
    depth[order] = height
    # On one thread and depth, the last start belongs to the innermost open event.
    level = lane[order].astype(np.int64) * (int(height.max()) + 2) + np.maximum(height, 0)
    levels = stable_order(level)
    starting = is_start[order[levels]]
    last = np.maximum.accumulate(np.where(starting, np.arange(len(levels)), -1))
    inside = (last >= 0) & (height[levels] > 0)
    inside[inside] = level[levels[last[inside]]] == level[levels[inside]]
    innermost[order[levels[inside]]] = event[order[levels[last[inside]]]]
    return before, depth, innermost


def stable_order(values: NDArray[np.integer]) -> NDArray[np.intp]:
    """Stable order of some numbers; small ones are sorted in linear time."""
    if len(values) and values.min() >= -(1 << 15) and values.max() < 1 << 15:
        values = values.astype(np.int16)
    return np.argsort(values, kind="stable")


def _along_streams(before: Int32, lane: Int32, partner: Int32, is_start: Bool, on_gpu: Bool) -> None:
    """Set what is before work: for an end its start, for a start the end of the work before it, or that's start."""
    ends = np.flatnonzero(on_gpu & ~is_start)
    before[ends] = partner[ends]
    starts = np.flatnonzero(on_gpu & is_start)
    order = starts[stable_order(lane[starts])]
    same = lane[order[1:]] == lane[order[:-1]]
    later, earlier = order[1:][same], order[:-1][same]
    before[later] = np.where(partner[earlier] < later, partner[earlier], earlier)


def last_before(group: NDArray[np.integer], sources: Bool, targets: Bool) -> tuple[Int64, Int64]:
    """Last source in the group of each target that has one before it, by position; a source is no target."""
    positions = np.flatnonzero(sources | targets)
    order = positions[stable_order(group[positions])]
    is_source = sources[order]
    last = np.maximum.accumulate(np.where(is_source, np.arange(len(order)), -1)) if len(order) else order
    has_source = (last >= 0) & ~is_source
    has_source[has_source] = group[order[last[has_source]]] == group[order[has_source]]
    return order[last[has_source]], order[has_source]
