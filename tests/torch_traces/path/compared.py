"""Differences between our graph of a trace and HTA's, in words."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.graph import EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.longest import BOUNDS, breakdown, longest_path, path_edges, summary
from dask_efficiency.torch_traces.path.region import find_region
from tests.torch_traces.path.hta import Answer, Question

SYNC = int(EdgeKind.SYNC)
#: Nanoseconds of HTA's unit.
MICROSECOND = 1_000
#: An end of an event: its position in ``traceEvents``, and whether it is its start.
End = tuple[int, bool]


@dataclass(frozen=True)
class Ours:
    """A path through our graph."""

    graph: TorchGraph
    longest: np.ndarray
    edges: np.ndarray

    @classmethod
    def of(cls, trace: RankTrace, question: Question) -> Ours:
        region = find_region(trace, question.annotation, question.instance)
        graph = build_graph(trace, region, data_loading=question.data_loading, infer=False)
        longest = longest_path(graph)
        return cls(graph, longest, path_edges(graph, longest))

    def events(self) -> list[int]:
        """Positions in the file of the region's events."""
        found: list[int] = self.graph.trace.events.index[self.graph.region.rows].tolist()
        return found

    def name(self, index: int) -> str:
        events = self.graph.trace.events
        return self.graph.trace.names[events.name[np.searchsorted(events.index, index)]]

    def asked_by(self, index: int) -> str:
        """The name of the call that asked for an event; "" if none is known."""
        events = self.graph.trace.events
        call = int(events.call[np.searchsorted(events.index, index)])
        return "" if call < 0 else self.graph.trace.names[events.name[call]]

    def ends(self) -> list[End]:
        """Event and end of each node."""
        nodes = self.graph.nodes
        return list(zip(self.graph.trace.events.index[nodes.event].tolist(), nodes.is_start.tolist(), strict=True))


def raw(path: str) -> dict[str, Any]:
    data = Path(path).read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if path.endswith(".gz") else data)
    return found


def rounded(trace: RankTrace, path: str) -> RankTrace:
    """A trace in whole microseconds, as HTA reads it: starts are rounded up, ends down, from doubles."""
    events = raw(path)["traceEvents"]
    whole = all(isinstance(event.get("ts", 0), int) for event in events)
    start, stop = trace.events.start.copy(), trace.events.stop.copy()
    base = int(trace.about.get("baseTimeNanoseconds", 0))
    for row, index in enumerate(trace.events.index.tolist()):
        ts, dur = events[index]["ts"], events[index]["dur"]
        first = ts if whole else math.ceil(float(ts))
        length = dur if whole else math.floor(float(ts) + float(dur)) - first
        start[row] = base + first * MICROSECOND
        stop[row] = start[row] + round(length * MICROSECOND)
    return replace(trace, events=replace(trace.events, start=start, stop=stop))


def load(path: str) -> RankTrace:
    return rounded(load_kineto(path).ranks[0], path)


@dataclass(frozen=True)
class Compared:
    """Our graph and path of a rounded trace, and HTA's."""

    trace: RankTrace
    question: Question
    answer: Answer

    def __post_init__(self) -> None:
        assert not self.answer.error, self.answer.error

    @cached_property
    def ours(self) -> Ours:
        return Ours.of(self.trace, self.question)

    def differences(self) -> list[str]:
        """Differences from HTA's, in words; paths are compared if the graphs are equal."""
        graphs = [*self._of_events(), *self._of_nodes(), *self._of_edges(), *self._of_attribution()]
        return graphs or [*_of_paths(self.ours, self.answer)]

    def differences_but_waits(self) -> list[str]:
        """Differences for graphs where HTA has waits back in time, for which ours may have others."""
        wrong = self.back_in_time()
        calls = {target for _, target in wrong}
        mine = {(pair, edge) for pair, edge in self.only_ours().items() if not (edge[0] == SYNC and pair[1] in calls)}
        theirs = {(pair, edge) for pair, edge in self.only_htas().items() if pair not in wrong}
        return [
            *self._of_events(),
            *self._sets("edge", set(map(_readable, mine)), set(map(_readable, theirs))),
            *self._of_attribution(),
        ]

    def back_in_time(self) -> set[tuple[End, End]]:
        """HTA's edges from a later instant to an earlier one."""
        nodes = self.answer.nodes
        return {
            (_end(nodes[edge.source]), _end(nodes[edge.target]))
            for edge in self.answer.edges
            if nodes[edge.source][1] > nodes[edge.target][1]
        }

    @cached_property
    def mine(self) -> dict[tuple[End, End], tuple[int, float]]:
        """Kind and microseconds of our edges."""
        edges, ends = self.ours.graph.edges, self.ours.ends()
        columns = (edges.source, edges.target, edges.kind, edges.weight)
        return {
            (ends[source], ends[target]): (kind, weight / MICROSECOND)
            for source, target, kind, weight in zip(*(column.tolist() for column in columns), strict=True)
        }

    @cached_property
    def theirs(self) -> dict[tuple[End, End], tuple[int, float]]:
        """Edges of HTA's graph; negative weights count as nothing in its paths."""
        nodes = self.answer.nodes
        return {
            (_end(nodes[edge.source]), _end(nodes[edge.target])): (edge.kind, float(max(edge.weight, 0)))
            for edge in self.answer.edges
        }

    def only_ours(self) -> dict[tuple[End, End], tuple[int, float]]:
        """Edges that HTA has not, or not so."""
        return {pair: edge for pair, edge in self.mine.items() if self.theirs.get(pair) != edge}

    def only_htas(self) -> dict[tuple[End, End], tuple[int, float]]:
        """Edges that we have not, or not so."""
        return {pair: edge for pair, edge in self.theirs.items() if self.mine.get(pair) != edge}

    def _of_events(self) -> Iterable[str]:
        """HTA has more of two sorts, which no path can lead through.

        Those are ranges of annotations as the GPU spans them, which it takes for events on threads, and
        synchronisations: of some sorts by their own time, not by their calls', and the waits of streams all over the
        trace.
        """
        mine, theirs = set(self.ours.events()), set(self.answer.events)
        row = {index: row for row, index in enumerate(self.trace.events.index.tolist())}
        category = self.trace.events.category
        more = {index for index in theirs - mine if category[row[index]] in (Category.GPU_ANNOTATION, Category.SYNC)}
        yield from self._sets("event of the region", mine, theirs - more)

    def _of_nodes(self) -> Iterable[str]:
        """Nodes with an edge: HTA lists some that have none, for synchronisations."""
        base = int(self.trace.about.get("baseTimeNanoseconds", 0))
        ends, at = self.ours.ends(), self.ours.graph.nodes.at.tolist()
        edges = self.ours.graph.edges
        joined = {*edges.source.tolist(), *edges.target.tolist()}
        mine = {(*ends[node], (at[node] - base) / MICROSECOND) for node in joined}
        joined = {edge.source for edge in self.answer.edges} | {edge.target for edge in self.answer.edges}
        theirs = {(*_end(node), float(node[1])) for node in map(self.answer.nodes.__getitem__, joined)}
        yield from self._sets("node", mine, theirs)

    def _of_edges(self) -> Iterable[str]:
        if len(self.mine) != len(self.ours.graph.edges):
            yield f"{len(self.ours.graph.edges) - len(self.mine)} of our edges join what another one joins"
        yield from self._sets("edge", set(map(_readable, self.mine.items())), set(map(_readable, self.theirs.items())))

    def _of_attribution(self) -> Iterable[str]:
        """Event whose time an edge is, where HTA has it."""
        edges, ends = self.ours.graph.edges, self.ours.ends()
        index = [*self.trace.events.index.tolist(), None]
        columns = zip(edges.source.tolist(), edges.target.tolist(), edges.event.tolist(), strict=True)
        mine = {(ends[source], ends[target]): index[event] for source, target, event in columns}
        nodes = self.answer.nodes
        for edge in self.answer.edges:
            pair = _end(nodes[edge.source]), _end(nodes[edge.target])
            if edge.event is not None and pair in mine and mine[pair] != edge.event:
                yield f"edge {self._named(pair)} is the time of {mine[pair]}, says HTA of {edge.event}"

    def _sets(self, what: str, mine: set[Any], theirs: set[Any]) -> Iterable[str]:
        for verb, some in (("only ours", mine - theirs), ("only HTA's", theirs - mine)):
            if some:
                named = ", ".join(self._named(one) for one in sorted(some, key=str)[:10])
                yield f"{len(some)} of {len(mine)}/{len(theirs)} {what} {verb}: {named}"

    def _named(self, one: Any) -> str:
        """For people: positions in the file with the names and microseconds of their events."""
        if isinstance(one, tuple):
            return "(" + " ".join(self._named(part) for part in one) + ")"
        if isinstance(one, bool):
            return "start" if one else "stop"
        events = self.trace.events
        row = int(np.searchsorted(events.index, one)) if isinstance(one, int) else len(events)
        if row == len(events) or events.index[row] != one:
            return str(one)
        start, stop = ((int(at[row]) - int(events.start.min())) / MICROSECOND for at in (events.start, events.stop))
        return f"{one}:{self.ours.name(one)[:30]}[{start:.10g}-{stop:.10g}]"


def _readable(edge: tuple[tuple[End, End], tuple[int, float]]) -> tuple[End, End, str]:
    """An edge, for people."""
    (source, target), (kind, weight) = edge
    return source, target, f"{EdgeKind(kind).name} of {weight:g} us"


def _end(node: tuple[int, int, bool]) -> End:
    event, _, is_start = node
    return event, is_start


def _of_paths(ours: Ours, answer: Answer) -> Iterable[str]:
    """Sum the time of a path here, as of several longest paths ours may be another one than HTA's."""
    edges, ends = ours.graph.edges, ours.ends()
    length = int(edges.weight[ours.edges].sum()) / MICROSECOND
    if length != answer.length:
        yield f"our longest path has {length} us, HTA's {answer.length}"
    path = [ends[node] for node in ours.longest.tolist()]
    why = {
        (answer.nodes[edge.source][::2], answer.nodes[edge.target][::2]): (edge.bound_by, max(edge.weight, 0))
        for edge in answer.edges
    }
    spent: Counter[str] = Counter()
    for pair in pairwise(path):
        bound_by, weight = why[pair]
        spent[bound_by] += weight
    theirs = {_category(name): weight / length for name, weight in spent.items() if name}
    if [answer.nodes[node][::2] for node in answer.longest] == path:
        reported = {_category(name): share / 100 for name, share in answer.summary.items()}
        yield from _of_summaries(theirs, reported, "HTA's edges", "HTA's summary")
    mine = summary(ours.graph, ours.edges)
    yield from _of_summaries(mine, theirs, "our summary", "HTA's")
    table = breakdown(ours.graph, ours.edges)
    totals: Counter[str] = Counter()
    for bound_by, duration in zip(table.bound_by.tolist(), table.duration.tolist(), strict=True):
        totals[BOUNDS[bound_by] if bound_by >= 0 else ""] += duration / MICROSECOND
    for name in {*totals, *map(_category, spent)} - {""}:
        wanted = sum(weight for one, weight in spent.items() if _category(one) == name)
        if totals[name] != wanted:
            yield f"our breakdown has {totals[name]} us of {name}, HTA's {wanted}"


def _of_summaries(mine: dict[str, float], theirs: dict[str, float], my_name: str, their_name: str) -> Iterable[str]:
    for name in {*mine, *theirs}:
        if abs(mine.get(name, 0.0) - theirs.get(name, 0.0)) > 1e-9:
            yield f"{my_name} has {mine.get(name)} of {name}, {their_name} {theirs.get(name)}"


def _category(name: str) -> str:
    """HTA calls one of them otherwise in its summary than the others."""
    return {"data_loading": "data_loading_bound"}.get(name, name)
