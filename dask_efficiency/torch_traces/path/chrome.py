"""A torch trace for Perfetto and chrome://tracing, with its critical path on top."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.files.storage import writing
from dask_efficiency.runs.path.kinds import KINDS
from dask_efficiency.runs.trace.events import TraceEvents, Written, WrittenSlice
from dask_efficiency.torch_traces.kineto.trace import GPU_WORK, KINETO_CATEGORIES, Category, KinetoTrace, RankTrace
from dask_efficiency.torch_traces.path.graph import FLOW_CATEGORIES, EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.streams import queue_lengths
from dask_efficiency.torch_traces.path.stretches import TorchStretches

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
    """Put slices on tracks where they are nested; greedily from left to right, so on few tracks.

    Overlaps of up to :data:`ROUNDING_NS` are cut off; other times stay.
    """
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


@dataclass(frozen=True, slots=True)
class Overlay:
    """A trace with the path to draw on it."""

    trace: KinetoTrace
    #: By rank of the trace, nanoseconds to add to its instants for those of the job.
    offset: Sequence[int]
    #: The walk that covers the window.
    stretches: TorchStretches
    #: Graph and position of the rank whose longest path is drawn, and positions of the path's edges.
    graph: TorchGraph
    position: int
    edges: Int32


def save_overlay(
    overlay: Overlay,
    path: str | os.PathLike[str],
    *,
    only_critical: bool = True,
    all_edges: bool = False,
    **storage_options: Any,
) -> Written:
    """Write a trace with its critical path in the Trace Event Format, for ui.perfetto.dev or chrome://tracing.

    Events of the path have the argument ``critical``, and its arrows are called ``critical_path``. Categories of arrows
    are HTA's.

    Parameters
    ----------
    path
        A local path or any fsspec URL. A name in ``.gz`` is compressed; Perfetto reads it as it is.
    only_critical
        Keep only events of the path, annotations and functions of Python.
    all_edges
        Draw every edge of the graph but launches that weigh nothing; not with ``only_critical``. By default only the
        path's edges of the kinds :data:`TELLING`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Returns
    -------
    Written
        Numbers of slices and arrows in the file.
    """
    marked = [_critical_rows(overlay, rank) for rank in range(len(overlay.trace.ranks))]
    with writing(path, compression="infer", **storage_options) as file:
        events = TraceEvents(file, _origin(overlay))
        export = _Export(overlay, events)
        export.walk()
        for rank, critical in enumerate(marked):
            export.rank(rank, critical, only_critical)
        export.edges(all_edges and not only_critical)
        export.between_ranks()
        events.close()
        return events.written


def _critical_rows(overlay: Overlay, position: int) -> Bool:
    """Mask of a rank's events on the longest path, or on the walk where the longest path is another rank's."""
    found = np.zeros(len(overlay.trace.ranks[position].events), np.bool_)
    if position == overlay.position:
        nodes, edges = overlay.graph.nodes, overlay.graph.edges
        found[nodes.event[edges.source[overlay.edges]]] = True
        found[nodes.event[edges.target[overlay.edges]]] = True
    else:
        stretches = overlay.stretches
        found[stretches.event[(stretches.rank == position) & (stretches.event != MISSING)]] = True
    return found


class _Export:
    """Writes slices, then the arrows between them."""

    def __init__(self, overlay: Overlay, events: TraceEvents) -> None:
        self.overlay = overlay
        self.events = events
        #: Slices by rank and row.
        self.places: dict[tuple[int, int], WrittenSlice] = {}

    def walk(self) -> None:
        """A track with the stretches of the window by kind."""
        stretches, ranks = self.overlay.stretches, self.overlay.trace.ranks
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
        trace = self.overlay.trace.ranks[position]
        events = trace.events
        chosen = critical | np.isin(events.category, KEPT) if only_critical else np.ones(len(events), np.bool_)
        on_gpu = np.isin(events.category, (*GPU_WORK, *_OWN_TRACKS))
        for of_gpu in (False, True):
            rows = np.flatnonzero(chosen & (on_gpu == of_gpu))
            for number in np.unique(events.process[rows]).tolist():
                process = self._process(position, rows[events.process[rows] == number], number, critical, of_gpu)
                if of_gpu:
                    self._queues(process, trace, number, int(self.overlay.offset[position]))

    def _process(self, position: int, rows: Int64, number: int, critical: Bool, of_gpu: bool) -> int:
        trace = self.overlay.trace.ranks[position]
        events = trace.events
        of_rank = f"rank {trace.rank} " if len(self.overlay.trace.ranks) > 1 else ""
        process = self.events.process(f"{of_rank}GPU {number}" if of_gpu else f"{of_rank}process {number}")
        for thread in np.unique(events.thread[rows]).tolist():
            of_thread = rows[events.thread[rows] == thread]
            name = trace.threads.get((number, thread)) or f"{'stream' if of_gpu else 'thread'} {thread}"
            apart = np.isin(events.category[of_thread], list(_OWN_TRACKS))
            self._lane(position, of_thread[~apart], process, name, critical)
            for category, what in _OWN_TRACKS.items():
                self._lane(
                    position, of_thread[events.category[of_thread] == category], process, f"{name}, {what}", critical
                )

        return process

    def _queues(self, process: int, trace: RankTrace, device: int, offset: int) -> None:
        """Counters of the launches that each stream of a GPU had not begun."""
        queues = queue_lengths(trace)
        rows = np.flatnonzero(queues.device == device)
        columns = (queues.at[rows] + offset, queues.stream[rows], queues.length[rows])
        for at, stream, length in zip(*(column.tolist() for column in columns), strict=True):
            self.events.counter(process, at, f"queue of stream {stream}:", {"waiting": length})

    def _lane(self, position: int, rows: Int64, process: int, name: str, critical: Bool) -> None:
        if not len(rows):
            return
        trace, offset = self.overlay.trace.ranks[position], int(self.overlay.offset[position])
        events = trace.events
        placed = nested(events.start[rows] + offset, events.stop[rows] + offset)
        tracks = {
            number: self.events.track(process, name if not number else f"{name}, overlapping")
            for number in np.unique(placed.track).tolist()
        }
        columns = (rows, placed.track, placed.start, placed.stop, events.name[rows], events.category[rows])
        more = (events.correlation[rows], critical[rows])
        # of slices that start together, the longer one goes first, as it is outside
        order = np.lexsort((-placed.stop, placed.start))
        for row, track, start, stop, name_number, category, correlation, is_critical in zip(
            *(column[order].tolist() for column in (*columns, *more)), strict=True
        ):
            args = {"correlation": correlation} if correlation != MISSING else {}
            if is_critical:
                args["critical"] = 1
            self.places[position, row] = self.events.slice(
                process,
                tracks[track],
                start,
                stop,
                trace.names[name_number],
                KINETO_CATEGORIES[Category(category)],
                args=args or None,
            )

    def edges(self, every: bool) -> None:
        """Arrows for the edges of the graph."""
        graph, position = self.overlay.graph, self.overlay.position
        edges, nodes = graph.edges, graph.nodes
        on_path = np.zeros(len(edges), np.bool_)
        on_path[self.overlay.edges] = True
        if every:
            drawn = ~((edges.kind == EdgeKind.LAUNCH_DELAY) & (edges.weight == 0))
        else:
            drawn = on_path & np.isin(edges.kind, TELLING)
        rows = np.flatnonzero(drawn)
        ends = [
            zip(nodes.event[column].tolist(), nodes.is_start[column].tolist(), strict=True)
            for column in (edges.source[rows], edges.target[rows])
        ]
        for source, target, kind, critical in zip(
            *ends, edges.kind[rows].tolist(), on_path[rows].tolist(), strict=True
        ):
            one, other = self.places.get((position, source[0])), self.places.get((position, target[0]))
            if one is None or other is None:
                continue
            leaves = _instant(one, is_start=source[1])
            # a slice's end may have been cut off, a node's instant was not
            arrives = max(_instant(other, is_start=target[1]), leaves)
            name = CRITICAL if critical else OTHER
            self.events.flow(one, leaves, other, arrives, name, FLOW_CATEGORIES[EdgeKind(kind)])

    def between_ranks(self) -> None:
        """Arrows where the walk goes from one rank to another."""
        stretches = self.overlay.stretches
        there = np.flatnonzero((stretches.event != MISSING) & (stretches.rank != MISSING))
        rank, event = stretches.rank[there], stretches.event[there]
        for before in np.flatnonzero(rank[1:] != rank[:-1]).tolist():
            one = self.places.get((int(rank[before]), int(event[before])))
            other = self.places.get((int(rank[before + 1]), int(event[before + 1])))
            if one is not None and other is not None:
                leaves = min(max(int(stretches.stop[there[before]]) - 1, one.start), one.stop - 1)
                arrives = max(int(stretches.start[there[before + 1]]), other.start, leaves)
                self.events.flow(one, leaves, other, arrives, RANKS, "critical_path_rank")


def _instant(place: WrittenSlice, *, is_start: bool) -> int:
    return place.start if is_start else max(place.stop - 1, place.start)


def _origin(overlay: Overlay) -> int:
    starts = [
        int(rank.events.start.min()) + int(offset)
        for rank, offset in zip(overlay.trace.ranks, overlay.offset, strict=True)
        if len(rank.events)
    ]
    return min([*starts, *overlay.stretches.start[:1].tolist()], default=0)
