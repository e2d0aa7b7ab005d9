"""TorchChanges: which edges of a graph take less time after a change, and which are gone."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Float64
from dask_efficiency.gpu.intervals import union
from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, NAMED_BY_PROGRAMS
from dask_efficiency.torch_traces.path.graph import EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.lanes import rank_pairs
from dask_efficiency.torch_traces.path.roles import events_named, gpu_collectives
from dask_efficiency.torch_traces.path.stalls import loading_rows

#: Kinds of time that can be left out, and the meaning of that.
WITHOUT = {
    "kernel-launch": "work on an idle GPU begins when it is asked for",
    "kernel-gap": "work on a GPU begins when the work before it on its stream ends",
    "gpu-communication": "collectives take no time, but still wait for the last rank",
    "gpu-sync": "calls that wait for the GPU return at once",
    "data-loading": "batches of data are there when they are asked for",
}


@dataclass(frozen=True, slots=True)
class TorchChanges:
    """Kernels and operators to speed up, and kinds of time to leave out; ValueError for what cannot be."""

    #: How many times as fast they are, by pattern of the names of kernels and operators.
    speed_up: Mapping[str, float] = field(default_factory=dict)
    #: Names in :data:`WITHOUT`.
    without: Collection[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.without, str):
            raise ValueError(f"without is {self.without!r}; expected a list such as [{self.without!r}]")
        for pattern, factor in self.speed_up.items():
            if not (isinstance(factor, int | float) and factor > 0 and math.isfinite(factor)):
                raise ValueError(f"speed_up[{pattern!r}] is {factor!r}; expected a number above 0")
        for name in self.without:
            if name not in WITHOUT:
                raise ValueError(f"without names {name!r}; expected some of {', '.join(WITHOUT)}")

    def in_words(self) -> str:
        """Beginning of a sentence."""
        parts = [f"{pattern!r} {factor:g} times as fast" for pattern, factor in self.speed_up.items()]
        parts += [f"no {name}" for name in self.without]
        return f"With {' and '.join(parts)}" if parts else "With no change"


def check_patterns(graphs: Sequence[TorchGraph], patterns: Iterable[str]) -> None:
    """Raise :class:`UnknownNameError` for a pattern that no kernel or operator of any graph has in its name."""
    for pattern in patterns:
        if not any(_rows_of(graph, pattern).any() for graph in graphs):
            known = dict.fromkeys(name for graph in graphs for name in _names_by_time(graph))
            raise UnknownNameError("kernel or operator", pattern, known)


def _names_by_time(graph: TorchGraph) -> list[str]:
    """Names of kernels and operators in the graph, by their total time, the longest first."""
    events, rows = graph.trace.events, np.unique(graph.nodes.event)
    length = (events.stop - events.start)[rows].astype(np.float64)
    spent = np.bincount(events.name[rows], length, minlength=len(graph.trace.names))
    numbers = np.flatnonzero(np.bincount(events.name[rows], minlength=len(graph.trace.names)))
    return [graph.trace.names[number] for number in numbers[np.argsort(-spent[numbers], kind="stable")].tolist()]


def time_shares(graph: TorchGraph, changes: TorchChanges) -> Float64:
    """Share of its time that each edge takes after the changes; 1 if it does not change."""
    shares = np.ones(len(graph.edges), np.float64)
    for pattern, times in changes.speed_up.items():
        matched = _rows_of(graph, pattern)
        shares[_own_time(graph, matched) | _within(graph, matched)] /= times
    kind = graph.edges.kind
    if "kernel-launch" in changes.without:
        shares[kind == EdgeKind.LAUNCH_DELAY] = 0.0
    if "kernel-gap" in changes.without:
        shares[kind == EdgeKind.KERNEL_DELAY] = 0.0
    if "gpu-communication" in changes.without:
        shares[_own_time(graph, gpu_collectives(graph.trace))] = 0.0
    if "data-loading" in changes.without:
        shares[_within(graph, mask_of(loading_rows(graph), len(graph.trace.events)))] = 0.0
    return shares


def _rows_of(graph: TorchGraph, pattern: str) -> Bool:
    """Kernels and operators in the graph with the pattern in their names, literally or as a regular expression."""
    events = graph.trace.events
    matching = mask_of(graph.nodes.event, len(events))
    matching[graph.region.rows] |= np.isin(events.category[graph.region.rows], NAMED_BY_PROGRAMS)
    matching &= np.isin(events.category, (*GPU_WORK, *CALLS, *NAMED_BY_PROGRAMS))
    try:
        search = re.compile(pattern).search
    except re.error:  # kernels have brackets of all kinds in their names
        search = re.compile(re.escape(pattern)).search
    return matching & events_named(graph.trace, lambda name: pattern in name or search(name) is not None)


def _own_time(graph: TorchGraph, rows: Bool) -> Bool:
    """Mask of edges that are the time of one of some events on a GPU."""
    edges = graph.edges
    on_gpu = (rows & graph.trace.events.is_gpu_work)[edges.event]
    own: Bool = (edges.kind == EdgeKind.OPERATOR) & (edges.event != MISSING) & on_gpu
    return own


def _within(graph: TorchGraph, rows: Bool) -> Bool:
    """Mask of edges that are a thread's time within one of some events on the CPU."""
    events, nodes, edges = graph.trace.events, graph.nodes, graph.edges
    within = np.zeros(len(edges), np.bool_)
    chosen = np.flatnonzero(rows & ~events.is_gpu_work)
    source, target = nodes.event[edges.source], nodes.event[edges.target]
    lane = rank_pairs(events.process, events.thread)
    of_thread = (edges.kind == EdgeKind.OPERATOR) & (lane[source] == lane[target]) & ~events.is_gpu_work[source]
    for number in np.unique(lane[chosen]).tolist():
        of_lane = chosen[lane[chosen] == number]
        covered = union(events.start[of_lane], events.stop[of_lane])
        mine = np.flatnonzero(of_thread & (lane[source] == number))
        since, until = nodes.at[edges.source[mine]], nodes.at[edges.target[mine]]
        which = np.searchsorted(covered.start, since, side="right") - 1
        inside = (which >= 0) & (until <= np.append(covered.stop, 0)[which])
        within[mine[inside]] = True
    return within
