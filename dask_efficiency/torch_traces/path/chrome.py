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
from dask_efficiency.runs.trace.events import Place, TraceEvents, Written
from dask_efficiency.torch_traces.kineto.trace import GPU_WORK, KINETO_CATEGORIES, Category, KinetoTrace, RankTrace
from dask_efficiency.torch_traces.path.graph import FLOW_CATEGORIES, EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.streams import queue_lengths
from dask_efficiency.torch_traces.path.stretches import TorchStretches

#: Nanoseconds by which times may be off where a file has whole microseconds: that much of an overlap is cut off.
ROUNDING_NS = 1000


class NestedSlices(NamedTuple):
    """By slice, in the order in which they were given."""

    #: From 0; slices that overlap and are not inside one another have different ones.
    track: Int64
    start: Int64
    stop: Int64


def nested(start: Int64, stop: Int64) -> NestedSlices:
    """A track for each slice, as few as a walk from left to right needs.

    Parameters
    ----------
    start, stop
        In any order; none stops before its start.

    Returns
    -------
    NestedSlices
        Overlaps of up to :data:`ROUNDING_NS` are cut off, all else is as it was.
    """
    order = np.lexsort((np.arange(len(start)), -stop, start)).tolist()
    starts, stops = start.tolist(), stop.tolist()
    tracks = [0] * len(starts)
    # by track, the slices that are open, the innermost last
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
    """Whether a slice is beside or inside those that are open, once overlaps by rounding are cut off."""
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


#: What stays beside the critical events where only these are wanted: it says where in the program they are.
KEPT = (Category.ANNOTATION, Category.PYTHON)

#: Arrows of the path that say more than that one thing comes after another.
TELLING = (EdgeKind.DEPENDENCY, EdgeKind.LAUNCH_DELAY, EdgeKind.SYNC)

#: Names of arrows: on the longest path, not on it, and from one rank to another on the path over all.
CRITICAL, OTHER, RANKS = "critical_path", "dependency", "critical_path_rank"

#: Events on a GPU that span others or wait, each kind on tracks of its own.
_BESIDE = {Category.SYNC: "synchronisations", Category.GPU_ANNOTATION: "annotations"}


@dataclass(frozen=True, slots=True)
class Overlay:
    """What is drawn."""

    trace: KinetoTrace
    #: By rank of the trace, what is to be added to its instants to have those of the job, in nanoseconds.
    offset: Sequence[int]
    #: The walk that covers the window.
    stretches: TorchStretches
    #: The graph of the rank whose longest path is drawn; that rank's position; edges of the path, by position.
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

    Parameters
    ----------
    path
        A local path or any fsspec URL. A name in ``.gz`` is compressed; Perfetto reads it as it is.
    only_critical
        Leave out what is not on the path, but for annotations and functions of Python.
    all_edges
        Draw every edge of the graph, but for launches that weigh nothing; not with ``only_critical``. Otherwise those
        of the path that are of the kinds :data:`TELLING`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Returns
    -------
    Written
        How many slices and arrows are in the file.

    Notes
    -----
    What is on the path has ``critical`` among its arguments, and an arrow of the path is called ``critical_path``.
    Categories of arrows are those of HTA.
    """
    marked = [critical_rows(overlay, rank) for rank in range(len(overlay.trace.ranks))]
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


def critical_rows(overlay: Overlay, position: int) -> Bool:
    """By event of a rank, whether the longest path goes through it; of the other ranks, whether the walk does."""
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
    """Writes the parts of a trace, slices before the arrows between them."""

    def __init__(self, overlay: Overlay, events: TraceEvents) -> None:
        self.overlay = overlay
        self.events = events
        #: By rank and row.
        self.places: dict[tuple[int, int], Place] = {}

    def walk(self) -> None:
        """A track with what each part of the window was spent on."""
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
        on_gpu = np.isin(events.category, (*GPU_WORK, *_BESIDE))
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
            beside = np.isin(events.category[of_thread], list(_BESIDE))
            self._lane(position, of_thread[~beside], process, name, critical)
            for category, what in _BESIDE.items():
                self._lane(
                    position, of_thread[events.category[of_thread] == category], process, f"{name}, {what}", critical
                )

        return process

    def _queues(self, process: int, trace: RankTrace, device: int, offset: int) -> None:
        """How much work each stream of a GPU had been asked for and had not begun."""
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
        # of slices that begin together, the longer one is around the other
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
            # times of nodes are exact, those of slices may have been cut by rounding
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


def _instant(place: Place, *, is_start: bool) -> int:
    return place.start if is_start else max(place.stop - 1, place.start)


def _origin(overlay: Overlay) -> int:
    starts = [
        int(rank.events.start.min()) + int(offset)
        for rank, offset in zip(overlay.trace.ranks, overlay.offset, strict=True)
        if len(rank.events)
    ]
    return min([*starts, *overlay.stretches.start[:1].tolist()], default=0)
