"""Our graph of a trace beside HTA's: what differs, in words."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dask_efficiency.critical_paths.torch.breakdown import breakdown, path_edges, summary
from dask_efficiency.critical_paths.torch.build import build_graph
from dask_efficiency.critical_paths.torch.graph import TorchGraph
from dask_efficiency.critical_paths.torch.longest import longest_path
from dask_efficiency.critical_paths.torch.region import find_region
from dask_efficiency.kineto.load import load_kineto
from dask_efficiency.kineto.trace import RankTrace
from tests.critical_paths.torch.hta import KINDS, Answer, Question

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

    def ends(self) -> list[End]:
        """Of each node."""
        nodes = self.graph.nodes
        return list(zip(self.graph.trace.events.index[nodes.event].tolist(), nodes.is_start.tolist(), strict=True))


def raw(path: str) -> dict[str, Any]:
    """What is in a trace's file."""
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
        first, last = (ts, ts + dur) if whole else (math.ceil(float(ts)), math.floor(float(ts) + float(dur)))
        start[row], stop[row] = base + first * MICROSECOND, base + round(last * MICROSECOND)
    return replace(trace, events=replace(trace.events, start=start, stop=stop))


def load(path: str) -> RankTrace:
    """One rank, rounded as HTA rounds it."""
    return rounded(load_kineto(path).ranks[0], path)


def differences(trace: RankTrace, question: Question, answer: Answer) -> list[str]:
    """What our graph and path of a rounded trace have otherwise than HTA's; empty if nothing."""
    ours = Ours.of(trace, question)
    graph_differs = [
        *_of_events(ours, answer),
        *_of_nodes(ours, answer),
        *_of_edges(ours, answer),
    ]
    return graph_differs or [*_of_paths(ours, answer), *_of_overlays(ours, answer)]


def _of_events(ours: Ours, answer: Answer) -> Iterable[str]:
    mine = ours.graph.trace.events.index[ours.graph.region.rows].tolist()
    yield from _of_sets("event of the region", ours, set(mine), set(answer.events))


def _of_nodes(ours: Ours, answer: Answer) -> Iterable[str]:
    """Nodes with an edge: HTA lists some that have none, for synchronisations."""
    base = int(ours.graph.trace.about.get("baseTimeNanoseconds", 0))
    ends, at = ours.ends(), ours.graph.nodes.at.tolist()
    edges = ours.graph.edges
    joined = {*edges.source.tolist(), *edges.target.tolist()}
    mine = {(*ends[node], (at[node] - base) / MICROSECOND) for node in joined}
    theirs = {edge.source for edge in answer.edges} | {edge.target for edge in answer.edges}
    named = {(event, is_start, float(at)) for event, at, is_start in (answer.nodes[node] for node in theirs)}
    yield from _of_sets("node", ours, mine, named)


def _of_edges(ours: Ours, answer: Answer) -> Iterable[str]:
    """Kinds, weights and the event that each is put down to."""
    edges, ends, index = ours.graph.edges, ours.ends(), ours.graph.trace.events.index
    mine = {
        (ends[source], ends[target]): (KINDS[kind], weight / MICROSECOND)
        for source, target, kind, weight in zip(
            edges.source.tolist(), edges.target.tolist(), edges.kind.tolist(), edges.weight.tolist(), strict=True
        )
    }
    if len(mine) != len(edges.source):
        yield f"{len(edges.source) - len(mine)} pairs of our nodes have more than one edge"
    theirs = _their_edges(answer)
    yield from _of_sets("edge", ours, set(mine.items()), {(pair, what[:2]) for pair, what in theirs.items()})
    events = [None if event < 0 else int(index[event]) for event in edges.event.tolist()]
    for source, target, event in zip(edges.source.tolist(), edges.target.tolist(), events, strict=True):
        said = theirs.get((ends[source], ends[target]))
        if said is not None and said[2] is not None and said[2] != event:
            pair = _named(ours, (ends[source], ends[target]))
            yield f"edge {pair} is the time of {event}, says HTA of {said[2]}"


def _their_edges(answer: Answer) -> dict[tuple[End, End], tuple[str, float, int | None]]:
    def end(node: int) -> End:
        event, _, is_start = answer.nodes[node]
        return event, is_start

    return {
        (end(edge.source), end(edge.target)): (KINDS[edge.kind], float(max(edge.weight, 0)), edge.event)
        for edge in answer.edges
    }


def _of_paths(ours: Ours, answer: Answer) -> Iterable[str]:
    """Where there are several longest paths, ours may be another one than HTA's; its time is then summed here."""
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
    for bound_by, duration in zip(list(table.bound_by), table.duration.tolist(), strict=True):
        totals[bound_by] += duration / MICROSECOND
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


def _of_overlays(ours: Ours, answer: Answer) -> Iterable[str]:
    return ()


def _of_sets(what: str, ours: Ours, mine: set[Any], theirs: set[Any]) -> Iterable[str]:
    for verb, some in (("only ours", mine - theirs), ("only HTA's", theirs - mine)):
        if some:
            named = ", ".join(_named(ours, one) for one in sorted(some, key=str)[:4])
            yield f"{len(some)} of {len(mine)}/{len(theirs)} {what} {verb}: {named}"


def _named(ours: Ours, one: Any) -> str:
    """For people: positions with the names of their events."""
    if isinstance(one, tuple):
        return "(" + " ".join(_named(ours, part) for part in one) + ")"
    if isinstance(one, bool):
        return "start" if one else "stop"
    if isinstance(one, int):
        events = ours.graph.trace.events
        row = int(np.searchsorted(events.index, one))
        return f"{one}:{ours.graph.trace.names[events.name[row]][:30]}"
    return str(one)
