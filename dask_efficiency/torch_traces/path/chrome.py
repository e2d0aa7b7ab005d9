"""A torch trace for Perfetto and chrome://tracing, with its critical path on top."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.files.storage import writing
from dask_efficiency.runs.path.kinds import KINDS
from dask_efficiency.runs.trace.events import TraceEvents, Written, WrittenSlice
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import GPU_WORK, KINETO_CATEGORIES, Category, RankTrace
from dask_efficiency.torch_traces.path.graph import FLOW_CATEGORIES, EdgeKind
from dask_efficiency.torch_traces.path.streams import queue_lengths

if TYPE_CHECKING:
    from dask_efficiency.torch_traces.path.path import TorchCriticalPath

#: Nanoseconds of overlap that are cut off: the resolution of files with whole microseconds.
ROUNDING_NS = 1000

#: Categories that are kept with the critical events if only these are wanted: they show where in the program one is.
KEPT = (Category.ANNOTATION, Category.PYTHON)

#: Kinds of arrows of the path that tell more than the order of events.
TELLING = (EdgeKind.DEPENDENCY, EdgeKind.LAUNCH_DELAY, EdgeKind.SYNC)

#: Names of arrows: on the longest path, not on it, and from one rank to another on the path over all.
CRITICAL, OTHER, RANKS = "critical_path", "dependency", "critical_path_rank"

#: Events on a GPU that span other events or wait, each kind on tracks of its own.
_OWN_TRACKS = {Category.SYNC: "synchronisations", Category.GPU_ANNOTATION: "annotations"}


class NestedSlices(NamedTuple):
    """Slices on tracks, in the order in which they were given."""

    #: From 0; slices on one track are nested or do not overlap.
    track: Int64
    start: Int64
    stop: Int64


def nested(start: Int64, stop: Int64) -> NestedSlices:
    """Put slices on few tracks where they are nested, greedily; overlaps of up to :data:`ROUNDING_NS` are cut off."""
    order = np.lexsort((np.arange(len(start)), -stop, start)).tolist()
    starts, stops = start.tolist(), stop.tolist()
    tracks = [0] * len(starts)
    # open slices by track, the innermost last
    open_slices: list[list[int]] = []
    for row in order:
        fitting = (track for track, stack in enumerate(open_slices) if _fits(row, stack, starts, stops))
        track = next(fitting, len(open_slices))
        if track == len(open_slices):
            open_slices.append([])
        open_slices[track].append(row)
        tracks[row] = track
    return NestedSlices(np.array(tracks, np.int64), start, np.array(stops, np.int64))


def _fits(row: int, stack: list[int], starts: list[int], stops: list[int]) -> bool:
    """True if a slice is inside the open ones or after them; cuts off overlaps of rounding."""
    at, until = starts[row], stops[row]
    while stack:
        inner = stack[-1]
        if stops[inner] <= at:
            stack.pop()
        elif until <= stops[inner]:
            return True
        elif until - stops[inner] <= ROUNDING_NS:
            stops[row] = stops[inner]
            return True
        elif stops[inner] - at <= ROUNDING_NS and starts[inner] < at:
            stops[inner] = at
            stack.pop()
        else:
            return False
    return True


def save_chrome(
    path: TorchCriticalPath,
    file: str | os.PathLike[str],
    *,
    only_critical: bool,
    all_edges: bool,
    **storage_options: Any,
) -> Written:
    """Write a trace with its critical path; see :meth:`TorchCriticalPath.to_chrome`."""
    with writing(file, compression="infer", **storage_options) as content:
        ranks = zip(path.trace.ranks, path.offset, strict=True)
        starts = [int(rank.events.start.min()) + offset for rank, offset in ranks if len(rank.events)]
        events = TraceEvents(content, min([*starts, *path.stretches.start[:1].tolist()], default=0))
        export = _Export(path, events)
        export.walk()
        for rank in range(len(path.trace.ranks)):
            export.rank(rank, _critical_rows(path, rank), only_critical)
        export.edges(all_edges)
        export.between_ranks()
        events.close()
        return events.written


def _critical_rows(path: TorchCriticalPath, position: int) -> Bool:
    """Mask of a rank's events on the longest path, or on the walk where the longest path is another rank's."""
    if position == path.positions[path.chosen]:
        nodes, edges = path.graph.nodes, path.graph.edges.take(path.path_edges)
        rows = nodes.event[np.concatenate([edges.source, edges.target])]
    else:
        stretches = path.stretches
        rows = stretches.event[(stretches.rank == position) & (stretches.event != MISSING)]
    return mask_of(rows, len(path.trace.ranks[position].events))


class _Export:
    """Writes slices, then the arrows between them."""

    def __init__(self, path: TorchCriticalPath, events: TraceEvents) -> None:
        self.path = path
        self.offset = path.offset
        self.events = events
        #: Slices by rank and row.
        self.places: dict[tuple[int, int], WrittenSlice] = {}

    def walk(self) -> None:
        """A track with the stretches of the window by kind."""
        stretches, ranks = self.path.stretches, self.path.trace.ranks
        process = self.events.process("critical path")
        track = self.events.track(process, "by kind")
        columns = (stretches.kind, stretches.start, stretches.stop, stretches.rank, stretches.event, stretches.inferred)
        for kind, start, stop, rank, event, inferred in zip(*(c.tolist() for c in columns), strict=True):
            args: dict[str, Any] = {}
            if rank != MISSING and len(ranks) > 1:
                args["rank"] = ranks[rank].rank
            if rank != MISSING and event != MISSING:
                args["event"] = ranks[rank].names[int(ranks[rank].events.name[event])][:200]
            if inferred:
                args["inferred"] = 1
            self.events.slice(process, track, start, stop, str(KINDS[kind]), "critical-path", args=args or None)

    def rank(self, position: int, critical: Bool, only_critical: bool) -> None:
        """A rank's threads and streams."""
        trace = self.path.trace.ranks[position]
        events = trace.events
        chosen = critical | np.isin(events.category, KEPT) | (not only_critical)
        on_gpu = np.isin(events.category, (*GPU_WORK, *_OWN_TRACKS))
        for of_gpu in (False, True):
            rows = np.flatnonzero(chosen & (on_gpu == of_gpu))
            for number in np.unique(events.process[rows]).tolist():
                process = self._process(position, rows[events.process[rows] == number], number, critical, of_gpu)
                if of_gpu:
                    self._queues(process, trace, number, self.offset[position])

    def _process(self, position: int, rows: Int64, number: int, critical: Bool, of_gpu: bool) -> int:
        trace = self.path.trace.ranks[position]
        events = trace.events
        of_rank = f"rank {trace.rank} " if len(self.path.trace.ranks) > 1 else ""
        process = self.events.process(f"{of_rank}{'GPU' if of_gpu else 'process'} {number}")
        for thread in np.unique(events.thread[rows]).tolist():
            of_thread = rows[events.thread[rows] == thread]
            name = trace.threads.get((number, thread)) or f"{'stream' if of_gpu else 'thread'} {thread}"
            apart = np.isin(events.category[of_thread], list(_OWN_TRACKS))
            self._lane(position, of_thread[~apart], process, name, critical)
            for category, what in _OWN_TRACKS.items():
                its = of_thread[events.category[of_thread] == category]
                self._lane(position, its, process, f"{name}, {what}", critical)
        return process

    def _queues(self, process: int, trace: RankTrace, device: int, offset: int) -> None:
        """Counters of the launches that each stream of a GPU had not begun."""
        queues = queue_lengths(trace)
        queues = queues.take(queues.device == device)
        columns = (queues.at + offset, queues.stream, queues.length)
        for at, stream, length in zip(*(column.tolist() for column in columns), strict=True):
            self.events.counter(process, at, f"queue of stream {stream}:", {"waiting": length})

    def _lane(self, position: int, rows: Int64, process: int, name: str, critical: Bool) -> None:
        trace, offset = self.path.trace.ranks[position], self.offset[position]
        events = trace.events
        placed = nested(events.start[rows] + offset, events.stop[rows] + offset)
        tracks = {
            number: self.events.track(process, name if not number else f"{name}, overlapping")
            for number in np.unique(placed.track).tolist()
        }
        # of slices that start together, the longer one goes first, as it is outside
        order = np.lexsort((-placed.stop, placed.start))
        columns = [rows, *placed, *(getattr(events, name)[rows] for name in ("name", "category", "correlation"))]
        for row, track, start, stop, number, category, correlation in zip(
            *(c[order].tolist() for c in columns), strict=True
        ):
            args = {"correlation": correlation} if correlation != MISSING else {}
            if critical[row]:
                args["critical"] = 1
            kind, of = KINETO_CATEGORIES[Category(category)], (process, tracks[track], start, stop)
            self.places[position, row] = self.events.slice(*of, trace.names[number], kind, args=args or None)

    def edges(self, every: bool) -> None:
        """Arrows for the edges of the graph."""
        edges, nodes, position = self.path.graph.edges, self.path.graph.nodes, self.path.positions[self.path.chosen]
        on_path = mask_of(self.path.path_edges, len(edges))
        weightless = (edges.kind == EdgeKind.LAUNCH_DELAY) & (edges.weight == 0)
        for edge in np.flatnonzero(~weightless if every else on_path & np.isin(edges.kind, TELLING)).tolist():
            source, target = edges.source[edge], edges.target[edge]
            begin, end = (self.places.get((position, int(nodes.event[node]))) for node in (source, target))
            if begin is None or end is None:
                continue
            leaves, arrives = (
                place.start if nodes.is_start[node] else max(place.stop - 1, place.start)
                for place, node in ((begin, source), (end, target))
            )
            # a slice's end may have been cut off, a node's instant was not
            arrives = max(arrives, leaves)
            name = CRITICAL if on_path[edge] else OTHER
            self.events.flow(begin, leaves, end, arrives, name, FLOW_CATEGORIES[EdgeKind(edges.kind[edge])])

    def between_ranks(self) -> None:
        """Arrows where the walk goes from one rank to another."""
        stretches = self.path.stretches
        known = np.flatnonzero((stretches.event != MISSING) & (stretches.rank != MISSING))
        rank, event = stretches.rank[known], stretches.event[known]
        for before in np.flatnonzero(rank[1:] != rank[:-1]).tolist():
            begin = self.places.get((int(rank[before]), int(event[before])))
            end = self.places.get((int(rank[before + 1]), int(event[before + 1])))
            if begin is not None and end is not None:
                leaves = min(max(int(stretches.stop[known[before]]) - 1, begin.start), begin.stop - 1)
                arrives = max(int(stretches.start[known[before + 1]]), end.start, leaves)
                self.events.flow(begin, leaves, end, arrives, RANKS, "critical_path_rank")
