"""last_causes: of all that each instant had to wait for, the one that came last."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind, TorchGraph, starts_and_stops
from dask_efficiency.torch_traces.path.instants import Instants, last_before
from dask_efficiency.torch_traces.path.roles import WAITS, awaited_copies, call_kinds, cpu_collectives, events_named

#: Operators of the backward pass as autograd's engine calls them: today ``autograd::engine::evaluate_function: ...``,
#: formerly ``AddmmBackward0`` and ``torch::autograd::AccumulateGrad``.
_BACKWARD = re.compile(r"autograd::|Backward\d*$")
#: Operators that hand a collective over to a backend, and may wait for it.
_DISTRIBUTED = re.compile("c10d::")
_Pairs = tuple[NDArray[np.integer], NDArray[np.integer]]

#: Nanoseconds after its call within which an idle GPU starts a kernel; a later one waited for something else. In HTA's
#: two traces of AlexNet 95 % start within 7 us, on an MI300 all within 20 us.
MAX_LAUNCH_DELAY = 50_000


def _across_threads(trace: RankTrace, instants: Instants) -> Iterator[_Pairs]:
    """Pairs of instants of different threads, of which the second may have waited for the first.

    A trace does not record it; it is inferred from what idle threads of PyTorch wait for:

    - The threads of forward and backward pass wait for each other.
    - A thread that is idle, or in an operator of torch.distributed, waits for a collective on the CPU. The collective
      was asked for by such an operator, or else by the main thread.
    - The first event of a thread waited for the last operator on any thread of its process.
    """
    if not len(instants):
        return
    lane, cpu, is_start, before = instants.lane, ~instants.on_gpu, instants.is_start, instants.before
    process: Int64 = trace.events.process[instants.event]
    # no event is open on its thread after it, and none was before it
    idle_after, idle_before = cpu & (instants.depth == 0), cpu & is_start & (instants.depth == 1)

    def by_lane(chosen: Bool) -> Int64:
        return np.bincount(lane[chosen], minlength=int(lane.max()) + 1)

    named_backward = events_named(trace, lambda name: _BACKWARD.search(name) is not None)[instants.event]
    total = np.maximum(by_lane(idle_before), 1)
    is_backward = 2 * by_lane(idle_before & named_backward) > total
    is_collective = by_lane(idle_before & cpu_collectives(trace)[instants.event]) == total
    size = by_lane(cpu)
    size[is_backward | is_collective] = 0
    backward, collective = cpu & is_backward[lane], cpu & is_collective[lane]
    main: Bool = cpu & (lane == int(size.argmax())) & bool(size.any())
    for waiting, working in ((main, backward), (backward, main)):
        yield last_before(process, working & idle_after, waiting & idle_before)
    distributed = events_named(trace, lambda name: _DISTRIBUTED.match(name) is not None)
    inner = instants.innermost[before]
    waiting = (before == MISSING) | idle_after[before] | ((inner != MISSING) & distributed[inner])
    yield last_before(process, collective & ~is_start, cpu & ~collective & waiting)
    callers = distributed[instants.event] & is_start & cpu
    yield last_before(process, callers if callers.any() else main, collective & is_start)
    first = (before == MISSING) & cpu
    yield last_before(process, instants.working & cpu & ~first, first)


class _Candidates(NamedTuple):
    """Pairs of instants, by position, of which the second had to wait for the first."""

    source: NDArray[np.integer]
    target: NDArray[np.integer]
    inferred: Bool | bool


@dataclass(frozen=True, slots=True)
class LastCauses:
    """By instant, the position of the earlier one that it waited for last; and a mask of inferred ones."""

    cause: Int32
    inferred: Bool


def last_causes(graph: TorchGraph, instants: Instants) -> LastCauses:
    """Find the last cause of each instant, before it in their order; missing where none is known.

    Of causes at the same time, work on a GPU is preferred.
    """
    causes = LastCauses(instants.before.copy(), np.zeros(len(instants), bool))
    groups = [_along_edges(graph, instants), _within_cuda_graphs(graph.trace, instants)]
    groups += [_after_work_before_window(graph, instants), _after_own_copies(graph.trace, instants)]
    groups += [_Candidates(*pairs, True) for pairs in _across_threads(graph.trace, instants)]
    _take_latest(causes, instants, groups)
    late = [_without_launch(graph, instants), _after_late_launches(graph.trace, instants, causes)]
    _take_latest(causes, instants, late)
    return causes


def _take_latest(causes: LastCauses, instants: Instants, groups: list[_Candidates]) -> None:
    """Replace each cause by the latest candidate that is later."""
    source = np.concatenate([group.source for group in groups])
    target = np.concatenate([group.target for group in groups])
    inferred = np.concatenate([np.broadcast_to(group.inferred, len(group.source)) for group in groups])
    known = (source != MISSING) & (source < target)
    source, target, inferred = source[known], target[known], inferred[known]
    later = instants.at * 2 + instants.on_gpu
    order = np.lexsort((~inferred, source, later[source]))
    # of several writes to a place the last one stays
    chosen = np.full(len(instants), MISSING, np.int64)
    chosen[target[order]] = order
    places = np.flatnonzero(chosen != MISSING)
    new, old = source[chosen[places]], causes.cause[places]
    # Work that was still active has only its start before this, but was waited for until now.
    ran = (old != MISSING) & instants.on_gpu[places] & instants.on_gpu[old]
    ran &= instants.is_start[places] & instants.is_start[old]
    better = (old == MISSING) | (later[new] > later[old]) | ((later[new] == later[old]) & (new > old))
    better &= ~ran
    places, new = places[better], new[better]
    causes.cause[places] = new
    causes.inferred[places] = inferred[chosen[places]]


def _along_edges(graph: TorchGraph, instants: Instants) -> _Candidates:
    """Edges between threads and streams, as those along one are in the instants already.

    Edges of the runtime's lock from the start of a call to the end of another are left out: an end waits for no start.
    """
    edges, start = graph.edges, instants.is_start
    source, target = instants.of_node[edges.source], instants.of_node[edges.target]
    known = (source != MISSING) & (target != MISSING) & (instants.lane[source] != instants.lane[target])
    known &= ~((edges.kind == EdgeKind.DEPENDENCY) & start[source] & ~start[target])
    return _Candidates(source[known], target[known], edges.inferred[known])


def _within_cuda_graphs(trace: RankTrace, instants: Instants) -> _Candidates:
    """Kernels of a CUDA graph, which share one call, wait for one another across streams."""
    call = trace.events.call[instants.event]
    works = instants.on_gpu & (call != MISSING)
    works[works] = np.bincount(call[works], minlength=1)[call[works]] > 2
    return _Candidates(*last_before(call, works & ~instants.is_start, works & instants.is_start), False)


def _after_work_before_window(graph: TorchGraph, instants: Instants) -> _Candidates:
    """Calls that wait for the GPU may wait for work from before the window, which the graph lacks."""
    waiting = np.isin(call_kinds(graph.trace), WAITS)[instants.event] & ~instants.is_start & ~instants.on_gpu
    in_graph = mask_of(instants.of_node[instants.of_node != MISSING], len(instants))
    before = instants.on_gpu & ~instants.is_start & ~in_graph
    group = np.zeros(len(instants), np.int8)
    return _Candidates(*last_before(group, before, waiting), True)


def _after_own_copies(trace: RankTrace, instants: Instants) -> _Candidates:
    """Calls waited for their own copies that ended during the call."""
    events = trace.events
    ends = np.flatnonzero(instants.on_gpu & ~instants.is_start)
    ends = ends[mask_of(awaited_copies(trace), len(events))[instants.event[ends]]]
    call = events.call[instants.event[ends]]
    _, returns = starts_and_stops(instants.event, instants.is_start, len(events))
    return _Candidates(ends, returns[call], True)


def _without_launch(graph: TorchGraph, instants: Instants) -> _Candidates:
    """Work whose call begins after it, or is not in the graph, waited for the last instant on any thread."""
    events, edges = graph.trace.events, graph.edges
    target = instants.of_node[edges.target[edges.kind == EdgeKind.LAUNCH_DELAY]]
    launched = mask_of(target[target != MISSING], len(instants))
    call = events.call[instants.event]
    lost = instants.on_gpu & instants.is_start & ~launched & (call != MISSING)
    lost &= events.start[call] >= graph.region.start
    threads = instants.working & ~instants.on_gpu
    group = np.zeros(len(instants), np.int8)
    return _Candidates(*last_before(group, threads, lost), True)


def _after_late_launches(trace: RankTrace, instants: Instants, causes: LastCauses) -> _Candidates:
    """Work that started long after its launch waited for the last end on its device, on any stream."""
    events, cause = trace.events, causes.cause
    called = events.call[instants.event]
    late = instants.on_gpu & instants.is_start & (cause != MISSING) & ~instants.on_gpu[cause]
    late &= (called != MISSING) & (instants.at - events.stop[called] > MAX_LAUNCH_DELAY)
    ends = instants.on_gpu & ~instants.is_start
    return _Candidates(*last_before(events.device[instants.event], ends, late), True)
