"""Tiles a window of a torch trace: walks backwards from its end, from each instant to what it waited for last.

Theory of operation
===================

**The question.** What was the time of a PyTorch program spent on, and what did it wait for? Kineto records events: an
operator or a call of CUDA on a thread, a kernel or a copy on a stream of a GPU. Threads run ahead of the GPU and wait
for it now and then, so no event's duration says whether making it shorter would help.

**How the modules fit.** Two answers come from one graph, and ``TorchCriticalPath`` (``path.py``) has both::

    RankTrace --> find_region --> build_graph --> TorchGraph --+--> longest_path --> nodes of a path, as in HTA
    (kineto/)     (region.py)     (build.py)      (graph.py)   |    (longest.py)
                                                               +--> Instants --> last_causes --> tile --> TorchStretches
                                                                (instants.py)  (last_causes.py)  (here)

- *Graph* (``graph.py``): two nodes for each event, its start and its end; an edge where the second of two cannot be
  before the first, with a weight, which is time of the first that counts. The rules of edges are those of HTA (Meta's
  Holistic Trace Analysis, ``traceinsight`` 0.6.1); where we depart from one, the function that makes the edge says so.
- *Longest path* (``longest.py``): the path of the largest sum of weights, in one pass over the edges in topological
  order. It can be compared with HTA's. But what waits weighs nothing, so it covers any part of the window, 6 to 100 %
  where we looked. Its shares are of itself and not of the wall clock.
- *Tiling* (here): the walk covers the window to the nanosecond. Its shares are of the wall clock, and its kinds are
  those of Dask's critical path, so that a task's profile can take the place of its ``compute-cpu`` there.

**Instants** are the states of the walk: starts and ends of events on threads and streams, in one order. Nodes of the
graph are among them, and events which explain a wait without being in it: work that was asked for before the window,
and collectives on the CPU's own threads.

**Transitions.** For each instant ``last_causes`` takes the latest of its candidates: the instant before it on its
thread; the start of its event or the end of the work before it on its stream; the sources of its edges; and inferred
ones. The time from a cause to its effect is

===========================  ===========================  ==============================================================
from                         to                           kind, and whose it is
===========================  ===========================  ==============================================================
an instant of a thread       the next on that thread      the innermost open event's own: mostly ``compute-cpu``, of a
                                                          call that waits ``gpu-sync``, of one that allocates
                                                          ``compute-noncpu``; ``compute-cpu`` of no event where none is
                                                          open
an instant of a thread       one of another thread        the same, of what is open on the first one all the time; of
                                                          the call, where it is the end of one that waited for a lock
an instant of a thread       start of work on a GPU       ``kernel-launch`` of that work
start of work                its end, or another instant  ``gpu-compute`` or ``gpu-communication`` of that work
end of work                  start of other work          ``kernel-gap`` of that work
end of work                  an instant of a thread       ``gpu-sync`` of that event, a call that waited; its own kind,
                                                          where it frees memory
===========================  ===========================  ==============================================================

The walk begins at the end of the window: on the thread of the annotation that closes it, or else with what ended last
on a GPU or on a thread that works. It ends at the first instant that is not after the window's start, or has no cause.
Then ``loading.py`` renames threads' time within events that load data, and ``known.py`` time of an idle GPU that is not
shown to be one: other work ran on it, launches have no work in the trace, or the work is the first of its stream.
Before all that, ``repairs.py`` moves clocks of GPUs that contradict launches and waits. In a job of several ranks
``tile_ranks`` does the same, and leaves a collective through the rank that came last to it.

**Invariants**, in ``tests/torch_traces/path/test_tiling.py`` unless another file is named:

1. The stretches tile the window, and each has a kind that fits its event, within the time of that event. ``wrong()``
   checks it on recorded traces (``test_recorded_traces_are_tiled``), random ones
   (``test_random_traces_are_tiled_in_all_their_steps``), simulated programs (``test_programs_are_tiled``) and graphs of
   random edges, of which only the tiling is asked (``test_graphs_without_sense_are_tiled``). That it finds what is
   broken: ``test_a_tiling_that_is_broken_is_found_out``.
2. No wait is named while what it waited for had not ended (``unexplained()``, in the first three of these).
3. Every cause is before its effect in the order of instants: ``_take_latest`` drops all others. So the walk ends.
4. No time of a recorded trace is ``unattributed`` if all its work was recorded, and all of an empty window is
   (``SCENES`` in ``test_tiling.py``).
5. No path is longer than the longest one (``test_no_path_is_longer`` in ``test_longest.py``), and on recorded and
   random traces it is HTA's (``test_against_hta.py``, which also has a test for each place where HTA is wrong).
6. No share of a window depends on 10 us of a GPU's clock (``test_repairs.py``).

**Why so.** Where instants are equal, causes must come before effects: work ends before the calls that wait for it, and
these before what comes next (``instants.py``). Steps along one thread or stream are the rule, so the walk passes
through all of them at once: it looks up where the run of them began. All columns are arrays; a graph library is not
needed.

**What was tried and rejected.**

- *The longest path as the only answer*: see above. Without recorded synchronisations it also reads "100 % CPU bound".
  Waits are inferred then from the calls that block (``inferred.py``), and marked: ``TorchStretches.inferred``.
- *networkx*, as in HTA: of 1 M nodes 8.8 s and 1.2 GB; rustworkx took 1.5 s. In four traces every edge led forward in
  time, so that one pass over sorted arrays is a topological pass; only equal times need an order of their own.
- *A step of the walk at a time*: it passes through what follows on a thread or stream in one step since.
- *Shares that stay when an edge is changed*, as in HTA: after a what-if, weights, instants, longest path and walk are
  worked out anew (``changes.py``).

**Limits.** A trace does not say why a thread is idle, nor what a blocking call without a record waited for; both are
inferred, from rules that were chosen on two recorded traces and on simulated programs. Work that starts more than 50 us
after its launch is taken to have waited for other work on its device. A window begins and ends with its rank's clock;
ranks are aligned by the collectives that they have in common (``clocks.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int8, Int32, Int64
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import CALLS, Category
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals
from dask_efficiency.torch_traces.path.graph import TorchGraph, places_in, starts_and_stops
from dask_efficiency.torch_traces.path.instants import Instants, stable_order
from dask_efficiency.torch_traces.path.known import as_far_as_known
from dask_efficiency.torch_traces.path.last_causes import last_causes
from dask_efficiency.torch_traces.path.roles import own_kinds
from dask_efficiency.torch_traces.path.stalls import with_loading
from dask_efficiency.torch_traces.path.stretches import RawStretches, TorchStretches

#: Events that can close a window on a thread.
_CLOSES = (Category.ANNOTATION, Category.OPERATOR, Category.PYTHON)

_Columns = tuple[Int8, Int32, Int32]

#: Kind of a rank's time that is not on the path.
_ELSEWHERE = -1
_CPU, _UNATTRIBUTED = KINDS.index(Kind.COMPUTE_CPU), KINDS.index(Kind.UNATTRIBUTED)
_LAUNCH, _MEMORY = KINDS.index(Kind.KERNEL_LAUNCH), KINDS.index(Kind.COMPUTE_NONCPU)


def tile(graph: TorchGraph) -> TorchStretches:
    """Find the critical path of one rank's window, as stretches that tile it exactly; the rank is position 0."""
    return tile_ranks([graph], CollectiveArrivals.empty(), np.zeros(1, np.int64))


def tile_ranks(graphs: Sequence[TorchGraph], arrivals: CollectiveArrivals, offset: Int64) -> TorchStretches:
    """Find the critical path of a job, as stretches that tile its window exactly, on the clock of the job.

    From a collective in which the rank waited, the walk continues at the arrival of the last rank, on that rank. Each
    collective is used once at most, so that the walk ends. Graphs are of every rank, in the order of the trace. Time
    before the region of the rank at which the walk ends is ``unattributed``.
    """
    arrivals = arrivals.shifted(offset)
    rows = arrivals.last_rows()
    last = arrivals.start[rows]
    waited = arrivals.start < arrivals.repeated(last)
    shifts = enumerate(zip(graphs, offset.tolist(), strict=True))
    ranks = [_Rank(graph, shift, arrivals.take(waited & (arrivals.rank == rank))) for rank, (graph, shift) in shifts]
    number = max(range(len(ranks)), key=lambda rank: ranks[rank].stop)
    # the region of a rank without events has no length and a meaningless start
    start = min((rank.start for rank in ranks if rank.start < rank.stop), default=ranks[number].start)
    at, position = ranks[number].stop, ranks[number].last_instant()
    used: set[int] = set()
    while True:
        rank = ranks[number]
        path, collective = rank.walk(position, used)
        until = rank.start
        if collective is not None:
            until = min(int(last[collective]), int(rank.instants.at[path[-2]]) + rank.offset)
        rank.add(path, min(until, at), at)
        at = min(until, at)
        if collective is None:
            return _joined(ranks, number, start, at)
        used.add(collective)
        number = int(arrivals.rank[rows[collective]])
        position = ranks[number].arrival(int(arrivals.event[rows[collective]]), at)


class _Rank:
    """One rank's instants, their last causes, and its stretches on the path."""

    def __init__(self, graph: TorchGraph, offset: int, waited: CollectiveArrivals) -> None:
        self._graph, self.offset = graph, offset
        self.start, self.stop = graph.region.start + offset, graph.region.stop + offset
        self.instants = instants = Instants.of(graph)
        self._causes = last_causes(graph, instants)
        self._own = own_kinds(graph.trace)
        self._raw: list[RawStretches] = []
        #: By row of an event, position of its start.
        self._starts, stops = starts_and_stops(instants.event, instants.is_start, len(graph.trace.events))
        #: Collectives in which it waited, by the position of the end of their event.
        self._collectives = dict(zip(stops[waited.event].tolist(), waited.collective.tolist(), strict=True))
        self._collectives.pop(MISSING, None)
        #: First position after the start of the window.
        self._until = int(np.searchsorted(instants.at, graph.region.start, side="right"))
        # Runs of instants that waited for the one before them on their thread or stream are passed in one step.
        self._order = order = stable_order(instants.lane)
        self._place = places_in(order)
        leads = np.append(True, self._causes.cause[order[1:]] != order[:-1]) | (order < self._until)
        leads[self._place[list(self._collectives)]] = True
        self._lead = np.maximum.accumulate(np.where(leads, np.arange(len(order)), 0))

    def last_instant(self) -> int:
        """Find the instant at which the walk begins; missing if the window has none."""
        stop, events, instants = self._graph.region.stop, self._graph.trace.events, self.instants
        inside = int(np.searchsorted(instants.at, stop, side="right"))
        closing = np.flatnonzero((events.stop == stop) & np.isin(events.category, _CLOSES))
        # the longest one first, as an annotation is longer than the events in it
        for row in events.by_start(closing).tolist():
            same = events.process[instants.event[:inside]] == events.process[row]
            same &= (events.thread[instants.event[:inside]] == events.thread[row]) & ~instants.on_gpu[:inside]
            if same.any():
                return int(np.flatnonzero(same)[-1])
        working = np.flatnonzero(instants.working[:inside])
        return int(working[-1]) if len(working) else inside - 1

    def walk(self, position: int, used: Collection[int]) -> tuple[Int64, int | None]:
        """Walk back to the start of the first unused collective in which the rank waited, or of the window."""
        runs = [np.empty(0, np.int64)]
        while position != MISSING:
            lead = self._lead[self._place[position]]
            last = int(self._order[lead])
            runs.append(self._order[lead : self._place[position] + 1][::-1])
            collective = self._collectives.get(last)
            if collective is not None and collective not in used:
                return np.concatenate([*runs, self.instants.partner[[last]]]), collective
            if last < self._until:
                break
            position = int(self._causes.cause[last])
        return np.concatenate(runs), None

    def arrival(self, event: int, at: int) -> int:
        """Position of the start of an event, or else of the last instant until a time on the clock of the job."""
        position = int(self._starts[event])
        if position != MISSING:
            return position
        return int(np.searchsorted(self.instants.at, at - self.offset, side="right")) - 1

    def add(self, path: Int64, start: int, stop: int) -> None:
        """Add the stretches of a path between two instants on the clock of the job, before those added so far."""
        if start < stop:
            self._raw.append(self._stretches_along(path, start - self.offset, stop - self.offset))

    def raw(self) -> RawStretches | None:
        """All stretches in time order, with :data:`_ELSEWHERE` in between; None if there are none."""
        if not self._raw:
            return None
        columns = []
        for part in self._raw[::-1]:
            columns += [part[1:], _without_event(_ELSEWHERE)]
        joined = (np.concatenate(column) for column in zip(*columns[:-1], strict=True))
        bounds = np.concatenate([part.bounds for part in self._raw[::-1]])
        return as_far_as_known(self._graph, with_loading(self._graph, RawStretches(bounds, *joined)))

    def _stretches_along(self, path: Int64, start: int, stop: int) -> RawStretches:
        """Name the time between the instants of a path, and before and after them."""
        if not len(path):
            return RawStretches(np.array([start, stop]), *_without_event(_UNATTRIBUTED))
        later, earlier = path[:-1], path[1:]
        # From the end of the window to its start.
        parts = [self._after(path[:1]), self._between(earlier, later), self._before(path[-1:])]
        kind, event, thread = (np.concatenate(columns)[::-1] for columns in zip(*parts, strict=True))
        bounds = np.concatenate([[stop], self.instants.at[path], [start]])[::-1]
        # A stretch is inferred if the step of the walk into it or out of it is.
        guessed = np.concatenate([[False], self._causes.inferred[later], [False]])
        guessed[1:] |= guessed[:-1]
        return RawStretches(np.clip(bounds, start, stop), kind, event, guessed[::-1], thread)

    def _between(self, earlier: Int64, later: Int64) -> _Columns:
        """Name the time between instants and their causes: its kind, its event, and an event of its thread."""
        instants, events = self.instants, self._graph.trace.events
        from_gpu, to_gpu = instants.on_gpu[earlier], instants.on_gpu[later]
        from_start, to_start = instants.is_start[earlier], instants.is_start[later]
        along = ~from_gpu & ~to_gpu & (instants.lane[earlier] == instants.lane[later])
        across = ~from_gpu & ~to_gpu & ~along
        event = instants.event[later].copy()
        # Along a thread the innermost open event has the time; from one thread to another, the event that stays open on
        # the first one, or else the call that waited for a lock.
        row = instants.innermost[earlier]
        event[along] = row[along]
        is_open = (events.stop[row] >= instants.at[later]) & ~np.isin(events.category[row], CALLS)
        event = np.where(across & to_start, np.where(is_open, row, MISSING), event)
        # work that was still active is what was waited for
        runs_on = from_gpu & from_start
        event[runs_on] = instants.event[earlier[runs_on]]
        kind = np.where(event == MISSING, _CPU, self._own[event])
        # freeing memory goes on after the wait that it begins with
        kind[from_gpu & ~from_start & ~to_gpu & (kind != _MEMORY)] = KINDS.index(Kind.GPU_SYNC)
        kind[from_gpu & ~from_start & to_gpu] = KINDS.index(Kind.KERNEL_GAP)
        kind[~from_gpu & to_gpu] = _LAUNCH
        return kind.astype(np.int8), event, np.where(to_gpu, MISSING, instants.event[later])

    def _after(self, last: Int64) -> _Columns:
        """Name the time after the last instant of a path, by what is still open on its thread."""
        instants, on_gpu, event = self.instants, self.instants.on_gpu[last], self.instants.event[last]
        row = np.where(on_gpu, np.where(instants.is_start[last], event, MISSING), instants.innermost[last])
        kind = np.where(row == MISSING, _CPU, self._own[row])
        return kind.astype(np.int8), row.astype(np.int32), np.where(on_gpu, MISSING, event).astype(np.int32)

    def _before(self, first: Int64) -> _Columns:
        """Name the time before the first instant of a path: of its thread, or of a launch before the window."""
        on_gpu, event = self.instants.on_gpu[first], self.instants.event[first]
        asked_for = on_gpu & self._graph.trace.events.has_call[event]
        kind = np.where(asked_for, _LAUNCH, np.where(on_gpu, _UNATTRIBUTED, _CPU))
        row = np.where(asked_for, event, MISSING)
        return kind.astype(np.int8), row.astype(np.int32), np.where(on_gpu, MISSING, event).astype(np.int32)


def _without_event(kind: int) -> tuple[NDArray[Any], ...]:
    """Columns of one stretch without an event."""
    missing = np.array([MISSING], np.int32)
    return np.array([kind], np.int8), missing, np.zeros(1, np.bool_), missing


def _joined(ranks: Sequence[_Rank], last: int, start: int, at: int) -> TorchStretches:
    """Stretches of all ranks in time order, with unattributed time before them."""
    taken = [(number, rank.offset, raw) for number, rank in enumerate(ranks) if (raw := rank.raw())]
    if start < at or not taken:
        taken.append((last, 0, RawStretches(np.array([start, at]), *_without_event(_UNATTRIBUTED))))
    names = ("kind", "event", "inferred")
    columns = {name: np.concatenate([getattr(raw, name) for *_, raw in taken]) for name in names}
    columns["rank"] = np.repeat([number for number, *_ in taken], [len(raw.kind) for *_, raw in taken]).astype(np.int32)
    begins = np.concatenate([raw.bounds[:-1] + offset for _, offset, raw in taken])
    stops = np.concatenate([raw.bounds[1:] + offset for _, offset, raw in taken])
    kept = np.flatnonzero((columns["kind"] != _ELSEWHERE) & (begins < stops))
    kept = kept[np.argsort(begins[kept], kind="stable")]
    bounds = np.append(begins[kept], stops[kept[-1:]])
    return TorchStretches.between(bounds, **{name: column[kept] for name, column in columns.items()})
