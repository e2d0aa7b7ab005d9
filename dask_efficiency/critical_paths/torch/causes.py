"""What each instant waited for last, of everything that it had to wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.critical_paths.torch.graph import EdgeKind, TorchGraph
from dask_efficiency.critical_paths.torch.instants import Instants, last_before
from dask_efficiency.critical_paths.torch.idle_threads import across_threads
from dask_efficiency.kineto.trace import RankTrace
from dask_efficiency.trace.tables import MISSING, Bool, Int32

#: How much later a kernel may seem to end than the call that waited for it, nanoseconds: Kineto reads the GPU's clock
#: and the CPU's at different times and draws a line between.
MAX_CLOCK_SKEW = 10_000

#: How long a GPU that has nothing to do takes to start a kernel, nanoseconds. In HTA's two traces of AlexNet 99 % of
#: the kernels that found their GPU idle started within this; one that starts later waited for something else.
MAX_LAUNCH_DELAY = 50_000


class Candidates(NamedTuple):
    """Pairs of positions of instants: the second had to wait for the first."""

    source: NDArray[np.integer]
    target: NDArray[np.integer]
    inferred: Bool | bool


@dataclass(frozen=True, slots=True)
class Causes:
    """For each instant, the position of what it waited for last (always an earlier one), and whether that is inferred."""

    cause: Int32
    inferred: Bool


def last_causes(graph: TorchGraph, instants: Instants) -> Causes:
    """What each instant waited for last; missing where it waited for nothing that is known.

    Every cause is before its effect in the order of the instants, so a walk along causes ends. Of causes at the same
    time, work on a GPU is preferred.
    """
    causes = Causes(instants.before.copy(), np.zeros(len(instants), bool))
    groups = [*_of_graph(graph, instants), _within_one_call(graph.trace, instants)]
    groups += [Candidates(*pairs, True) for pairs in across_threads(graph.trace, instants)]
    _take_latest(causes, instants, groups)
    _take_latest(causes, instants, [_beside_late_launches(graph.trace, instants, causes)])
    return causes


def _take_latest(causes: Causes, instants: Instants, groups: list[Candidates]) -> None:
    """Put the latest of some candidates where it is later than what is known."""
    source = np.concatenate([group.source for group in groups])
    target = np.concatenate([group.target for group in groups])
    inferred = np.concatenate([np.broadcast_to(group.inferred, len(group.source)) for group in groups])
    known = (source >= 0) & (source < target)
    source, target, inferred = source[known], target[known], inferred[known]
    later = instants.at * 2 + instants.on_gpu
    order = np.lexsort((~inferred, source, later[source]))
    # The last one that is written to a place stays.
    chosen = np.full(len(instants), MISSING, np.int64)
    chosen[target[order]] = order
    places = np.flatnonzero(chosen != MISSING)
    new, old = source[chosen[places]], causes.cause[places]
    better = (old == MISSING) | (later[new] > later[old]) | ((later[new] == later[old]) & (new > old))
    places, new = places[better], new[better]
    causes.cause[places] = new
    causes.inferred[places] = inferred[chosen[places]]


def _of_graph(graph: TorchGraph, instants: Instants) -> Iterator[Candidates]:
    """The graph's edges but for those along a thread and within an event, which are the instants' own order.

    An end cannot have waited for the start of another call, although the graph has such edges for the runtime's lock.
    """
    edges = graph.edges
    source, target = instants.of_node[edges.source], instants.of_node[edges.target]
    on_gpu, start = instants.on_gpu, instants.is_start
    known = (source != MISSING) & (target != MISSING) & (instants.lane[source] != instants.lane[target])
    known &= ~((edges.kind == EdgeKind.DEPENDENCY) & start[source] & ~start[target])
    source, target, inferred = source[known], target[known], edges.inferred[known]
    yield Candidates(source, target, inferred)
    # Work that seems to have ended after its effect: it was running then, so its start stands for it.
    late = (source > target) & on_gpu[source] & ~start[source]
    late &= on_gpu[target] | (instants.at[source] - instants.at[target] <= MAX_CLOCK_SKEW)
    yield Candidates(instants.partner[source[late]], target[late], inferred[late])
    # Work that seems to have started before its call: what the thread did before the call.
    early = (source > target) & ~on_gpu[source] & on_gpu[target]
    yield Candidates(instants.before[source[early]], target[early], inferred[early])


def _within_one_call(trace: RankTrace, instants: Instants) -> Candidates:
    """The kernels of a CUDA graph, which have one call in common, wait for one another on whatever streams they are."""
    call = trace.events.call[instants.event]
    works = np.flatnonzero(instants.on_gpu & (call != MISSING))
    several = np.bincount(call[works], minlength=1)[call[works]] > 2
    works = works[several]
    return Candidates(*last_before(call, works, ~instants.is_start), False)


def _beside_late_launches(trace: RankTrace, instants: Instants, causes: Causes) -> Candidates:
    """Work that started long after its launch waited for what ended last on its device, on whatever stream."""
    cause = causes.cause
    late = instants.on_gpu & instants.is_start & (cause != MISSING)
    late[late] = ~instants.on_gpu[cause[late]]
    late[late] = instants.at[late] - instants.at[cause[late]] > MAX_LAUNCH_DELAY
    works = np.flatnonzero(instants.on_gpu)
    source, target = last_before(trace.events.device[instants.event], works, ~instants.is_start)
    return Candidates(source[late[target]], target[late[target]], True)
