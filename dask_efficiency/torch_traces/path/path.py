"""TorchCriticalPath: the use of a PyTorch program's time, and the changes that would shorten it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from dask_efficiency.accounts.tables import Int32, frame_of, needs_pandas
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.runs.path.parts import PathPart, headline, worth_finding
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.show.finding import Finding
from dask_efficiency.show.shown import Shown, late
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path import longest as tables
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.changes import Rewired, retimed, unchanged, with_changes, with_edges
from dask_efficiency.torch_traces.path.data_flow import DataFlow, data_flow
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.known import Grounds, grounds_of
from dask_efficiency.torch_traces.path.ranks import JobRanks, job_ranks
from dask_efficiency.torch_traces.path.region import TorchQuestion, find_region
from dask_efficiency.torch_traces.path.repairs import repaired
from dask_efficiency.torch_traces.path.speeds import TorchChanges, check_patterns
from dask_efficiency.torch_traces.path.stalls import Stall, stalls
from dask_efficiency.torch_traces.path.streams import QueueLengths, queue_lengths
from dask_efficiency.torch_traces.path.stretches import TorchStretches, gpu_seconds_during, in_figures, seconds_by
from dask_efficiency.torch_traces.path.tiling import tile, tile_ranks

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

    from dask_efficiency.runs.trace.events import Written


# It has no slots, because cached properties need a ``__dict__``.
@dataclass(frozen=True, repr=False)
class TorchCriticalPath(Shown):
    """Critical path of a PyTorch program: a walk that covers its window, and the longest path.

    Parameters
    ----------
    trace
        One or more ranks.
    question
        The part of the trace that the path explains.
    graphs
        By rank of the path, what its events had to wait for.
    chosen
        Position in the graphs of the rank whose longest path is here: the one that ended last.
    longest
        Nodes of the longest path, in order.
    stretches
        The walk back from the end along last causes. It covers the window to the nanosecond.
    job
        Waits between ranks, and offsets of their clocks.
    changes
        Changes since the trace was recorded, a sentence each; empty for a recorded path.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.torch_traces.sections"

    trace: KinetoTrace
    question: TorchQuestion
    graphs: tuple[TorchGraph, ...]
    chosen: int
    longest: Int32
    stretches: TorchStretches
    job: JobRanks
    changes: tuple[str, ...] = ()

    @classmethod
    def _of_graphs(
        cls, trace: KinetoTrace, question: TorchQuestion, graphs: tuple[TorchGraph, ...], changes: tuple[str, ...] = ()
    ) -> Self:
        if not any(len(graph.nodes) for graph in graphs):
            raise EmptyTraceError(
                "nothing in what was asked for takes time on a thread or a GPU; expected operators, calls or kernels"
            )
        job = job_ranks(trace, data_loading=question.data_loading)
        positions = [trace.numbers.index(graph.trace.rank) for graph in graphs]
        ends = [graph.region.stop + job.clocks.offset[place] for graph, place in zip(graphs, positions, strict=True)]
        chosen = int(np.argmax(ends))
        if len(graphs) > 1:
            stretches = tile_ranks(graphs, job.collectives.arrivals, job.clocks.offset)
        else:
            stretches = tile(graphs[0])
            stretches = replace(stretches, rank=np.full(len(stretches), positions[0], np.int32))
        return cls(trace, question, graphs, chosen, tables.longest_path(graphs[chosen]), stretches, job, changes)

    @property
    def graph(self) -> TorchGraph:
        """The graph of the chosen rank."""
        return self.graphs[self.chosen]

    @property
    def rank(self) -> int:
        """The number of the chosen rank."""
        return self.graph.trace.rank

    @cached_property
    def path_edges(self) -> Int32:
        """Positions of the edges between the nodes of the longest path."""
        return tables.path_edges(self.graph, self.longest)

    @property
    def window_seconds(self) -> float:
        """Wall clock of the window, over all ranks of the path."""
        stretches = self.stretches
        return (int(stretches.stop[-1]) - int(stretches.start[0])) / 1e9 if len(stretches) else 0.0

    @property
    def longest_path_seconds(self) -> float:
        """Length of the chosen rank's longest path, which HTA defines as the weight of its edges."""
        return int(self.graph.edges.weight[self.path_edges].sum()) / 1e9

    @cached_property
    def shares(self) -> dict[str, float]:
        """Shares of :meth:`summary`, as a dictionary."""
        return tables.summary(self.graph, self.path_edges)

    def summary(self) -> pd.Series[float]:
        """Share of the longest path by what bounds it, in [0, 1]; largest first. Needs pandas.

        Returns
        -------
        Series
            By HTA's categories: ``cpu_bound``, ``data_loading_bound``, ``gpu_compute_bound``,
            ``gpu_communication_bound``, ``gpu_kernel_kernel_overhead`` and ``gpu_kernel_launch_overhead``. Their sum
            is 1, or 0 where the longest path takes no time.
        """
        with needs_pandas():
            import pandas as pd

        shares = dict(sorted(self.shares.items(), key=lambda item: -item[1]))
        summary: pd.Series[float] = pd.Series(shares, dtype=float, name="share").rename_axis("bound_by")
        return summary

    def seconds(self, by: str = "kind") -> dict[str, float]:
        """Seconds of the window by kind, by name of the event or by rank; largest first. Their sum is the window.

        Time of no event, or no rank, is under ``"-"``.

        Raises
        ------
        ValueError
            If ``by`` is none of :data:`~dask_efficiency.torch_traces.path.stretches.GROUPS`.
        """
        return seconds_by(by, self.stretches, self.trace)

    def seconds_of(self, kinds: Collection[Kind], by: str = "name") -> dict[str, float]:
        """Seconds of the window that some kinds take, by kind, name or rank; largest first."""
        chosen = np.isin(self.stretches.kind, [KINDS.index(kind) for kind in kinds])
        return seconds_by(by, self.stretches.take(chosen), self.trace)

    @property
    def inferred_seconds(self) -> float:
        """Seconds of the window next to waits that were inferred, not recorded."""
        stretches = self.stretches
        return int((stretches.stop - stretches.start)[stretches.inferred].sum()) / 1e9

    @property
    def inferred_edges(self) -> int:
        """Number of edges, over all ranks of the path, that were inferred from which calls block."""
        return int(sum(np.count_nonzero(graph.edges.inferred) for graph in self.graphs))

    def breakdown(self) -> pd.DataFrame:
        """The edges of the longest path, in its order. Needs pandas.

        Returns
        -------
        DataFrame
            Columns ``edge`` (position in :meth:`edges`), ``kind``, ``name`` of the event, ``duration_seconds``,
            ``bound_by`` (empty for an edge without time of its own), ``process``, ``thread``, ``stream``.
        """
        return frame_of(tables.breakdown_columns(self.graph, self.path_edges))

    def nodes(self) -> pd.DataFrame:
        """Starts and ends of the chosen rank's events, in time order. Needs pandas.

        Returns
        -------
        DataFrame
            Columns ``at`` (integer nanoseconds, on the rank's clock), ``name``, ``category``, ``is_start``, ``event``
            (position among the file's ``traceEvents``), ``process``, ``thread``, ``stream``, and ``critical`` (true on
            the longest path).
        """
        return frame_of(tables.node_columns(self.graph, self.longest))

    def edges(self) -> pd.DataFrame:
        """Edges of the chosen rank's graph: what its nodes had to wait for. Needs pandas.

        Returns
        -------
        DataFrame
            By position, for :meth:`with_edges`: columns ``source`` and ``target`` (rows of :meth:`nodes`), ``kind``
            (HTA's), ``weight_seconds``, ``inferred``, ``critical``, and those of :meth:`nodes` for the event whose time
            it is.
        """
        return frame_of(tables.edge_columns(self.graph, self.path_edges))

    @property
    def offset(self) -> tuple[int, ...]:
        """Nanoseconds to add to each rank's instants for those of the job, in the order of the trace."""
        return tuple(self.job.clocks.offset.tolist())

    def ranks(self) -> JobRanks:
        """Waits between ranks: late arrivals, waits caused and suffered, and the straggler of each step and its cause.

        Returns
        -------
        JobRanks
            Its tables (``waits`` by rank, ``late`` by collective, ``stragglers`` by step) have a ``to_frame()``. They
            are empty for a single rank, or if ranks have no collective in common.
        """
        return self.job

    def queue_lengths(self) -> QueueLengths:
        """Number of launches that each stream of the chosen rank's GPUs had not begun, over time."""
        return queue_lengths(self.graph.trace)

    def data_flow(self) -> DataFlow:
        """Earliest starts of the chosen rank's operators if they waited for their data alone.

        Returns
        -------
        DataFlow
            ``floor_seconds`` is the time that data alone need; ``operators.to_frame()`` and ``earlier_seconds`` have
            the operators that could run earlier.

        Raises
        ------
        ValueError
            Without an execution trace: ``load_kineto(..., execution_trace="et.json")``.
        """
        return data_flow(self.graph.trace, self.graph.region)

    def stalls(self) -> dict[str, Stall]:
        """Time in calls that manage memory and in events that load data, over the ranks of the path; longest first."""
        of_graphs = []
        for graph, position in zip(self.graphs, self.positions, strict=True):
            mine, shift = self.stretches.take(self.stretches.rank == position), self.offset[position]
            of_graphs.append((graph, replace(mine, start=mine.start - shift, stop=mine.stop - shift)))
        return stalls(of_graphs)

    @property
    def headline(self) -> str:
        """One line: the window's length and its largest part; at most 100 characters, without a full stop."""
        return headline(self._parts, in_figures(self.window_seconds), "the window")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Parts of the window and who is to blame, the largest share first, with what each could save."""
        return worth_finding(self._parts, self.window_seconds)

    @cached_property
    def _parts(self) -> list[PathPart]:
        if not self.window_seconds:
            return []
        parts: list[PathPart] = late("dask_efficiency.torch_traces.path.findings:parts")(self)
        return parts

    def gpu_seconds_during(self, kind: Kind) -> float:
        """Seconds of the path's time of a kind in which the GPUs of its rank were at work."""
        return gpu_seconds_during(kind, self.stretches, self.graphs, self.positions, self.offset)

    @cached_property
    def grounds(self) -> Grounds:
        """Known and unknown parts of what the findings rest on."""
        return grounds_of(self.stretches, self.graphs, self.positions, self.offset)

    @property
    def has_gpu(self) -> bool:
        """True if any rank of the path has work on a GPU."""
        return any(bool(graph.trace.events.is_gpu_work.any()) for graph in self.graphs)

    def what_if(self, *, speed_up: Mapping[str, float] | None = None, without: Collection[str] = ()) -> Self:
        """Estimate the path of the same program with changes.

        Parameters
        ----------
        speed_up
            How many times as fast kernels and operators are, by a part of their names or a regular expression. An
            operator with all that its thread does within it; a kernel by itself.
        without
            Kinds of time to leave out (:data:`~dask_efficiency.torch_traces.path.speeds.WITHOUT`):
            ``"kernel-launch"``, ``"kernel-gap"``, ``"gpu-communication"``, ``"gpu-sync"``, ``"data-loading"``.

        Returns
        -------
        TorchCriticalPath
            All weights and instants are worked out anew, then the longest path, its summary and the walk. Time that the
            trace does not explain stays as long as it was.

        Raises
        ------
        UnknownNameError
            If no kernel or operator has such a name; the message lists names.
        ValueError
            If a factor is no number above 0, or ``without`` has an unknown name.
        """
        changes = self._changes(speed_up, without)
        return self._of_changed(self._with(changes), changes.in_words())

    def saved_seconds(self, *, speed_up: Mapping[str, float] | None = None, without: Collection[str] = ()) -> float:
        """Seconds by which the changes of :meth:`what_if` make the window shorter."""
        changes = self._changes(speed_up, without)
        again = self._retimed(self._with(changes))
        return (self._ends_at(self.graphs) - self._ends_at(again)) / 1e9

    @cached_property
    def _unchanged(self) -> list[Rewired]:
        return [unchanged(graph) for graph in self.graphs]

    def _with(self, changes: TorchChanges) -> list[Rewired]:
        graphs = zip(self.graphs, self._unchanged, strict=True)
        return [with_changes(graph, was, changes) for graph, was in graphs]

    def _changes(self, speed_up: Mapping[str, float] | None, without: Collection[str]) -> TorchChanges:
        changes = TorchChanges(speed_up or {}, without if isinstance(without, str) else tuple(without))
        check_patterns(self.graphs, changes.speed_up)
        return changes

    def with_edges(
        self,
        *,
        add: Iterable[tuple[int, int, float]] = (),
        remove: Iterable[int] = (),
        reweight: Mapping[int, float] | None = None,
    ) -> Self:
        """The path with other edges in the chosen rank's graph.

        Parameters
        ----------
        add
            New edges, of HTA's kind ``critical_path_dependency``: rows of source and target in :meth:`nodes`, and
            seconds.
        remove
            Rows of :meth:`edges`.
        reweight
            By row of :meth:`edges`, seconds.

        Returns
        -------
        TorchCriticalPath
            Worked out anew, as by :meth:`what_if`.

        Raises
        ------
        CycleError
            If nodes would have to wait for one another; the message names them.
        ValueError
            If a node or edge does not exist, a weight is negative, or a new edge exists already.
        """
        more = [(source, target, round(seconds * 1e9)) for source, target, seconds in add]
        fewer, other = list(remove), {edge: round(seconds * 1e9) for edge, seconds in (reweight or {}).items()}
        changed = list(self._unchanged)
        changed[self.chosen] = with_edges(self.graph, changed[self.chosen], more, fewer, other)
        counts = {"more": len(more), "fewer": len(fewer), "of another weight": len(other)}
        listed = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return self._of_changed(changed, f"With other edges ({listed})" if listed else "With no change")

    def _retimed(self, changed: Sequence[Rewired]) -> tuple[TorchGraph, ...]:
        placed = [(position, self.offset[position]) for position in self.positions]
        return retimed(self.graphs, placed, self.job.collectives.arrivals, self._unchanged, changed)

    def _of_changed(self, changed: Sequence[Rewired], change: str) -> Self:
        graphs = self._retimed(changed)
        ranks = list(self.trace.ranks)
        for position, graph in zip(self.positions, graphs, strict=True):
            ranks[position] = graph.trace
        trace = replace(self.trace, ranks=tuple(ranks))
        return self._of_graphs(trace, self.question, graphs, (*self.changes, change))

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the path, its trace and its graphs to a path or fsspec URL; :func:`load_critical_path` reads it."""
        late("dask_efficiency.torch_traces.path.files:save_path")(self, path, **storage_options)

    def to_chrome(
        self,
        path: str | os.PathLike[str],
        *,
        only_critical: bool = True,
        all_edges: bool = False,
        **storage_options: Any,
    ) -> Written:
        """Write the trace, with this path marked in it, for ui.perfetto.dev or chrome://tracing.

        Parameters
        ----------
        path
            A local path or any fsspec URL. A name in ``.gz`` is compressed; Perfetto reads it as it is.
        only_critical
            Keep only events of the path, annotations and functions of Python.
        all_edges
            Draw every edge of the graph but launches that weigh nothing; not with ``only_critical``. By default only
            the path's edges that tell more than the order of events.
        **storage_options
            For the file system, as in :func:`fsspec.open`.

        Returns
        -------
        Written
            Numbers of slices and arrows in the file.

        Notes
        -----
        Events of the path have the argument ``critical``, and its arrows are called ``critical_path``. Categories of
        arrows are HTA's.
        """
        save = late("dask_efficiency.torch_traces.path.chrome:save_chrome")
        every = all_edges and not only_critical
        written: Written = save(self, path, only_critical=only_critical, all_edges=every, **storage_options)
        return written

    def _ends_at(self, graphs: Sequence[TorchGraph]) -> int:
        placed = zip(graphs, self.positions, strict=True)
        return max(graph.region.stop + self.offset[position] for graph, position in placed)

    @property
    def positions(self) -> list[int]:
        """Position in the trace of each graph's rank."""
        return [self.trace.numbers.index(graph.trace.rank) for graph in self.graphs]

    def to_networkx(self) -> nx.DiGraph[int]:
        """The chosen rank's graph for networkx, which has to be installed.

        Returns
        -------
        DiGraph
            Nodes are numbered as in :meth:`nodes` and have its columns as attributes; edges have those of
            :meth:`edges`, and ``weight`` in nanoseconds.

        Raises
        ------
        ImportError
            If networkx is not installed.
        """
        return tables.to_networkx(self.graph, self.longest, self.path_edges)


def critical_path(
    trace: KinetoTrace,
    *,
    annotation: str = "",
    instance: int | tuple[int, int] | None = None,
    rank: int | None = None,
    data_loading: str | Sequence[str] | None = None,
) -> TorchCriticalPath:
    """Find the critical path of a PyTorch program.

    There are two answers: a walk back from the end of the window, from each event to its last cause, which covers the
    window to the nanosecond; and the longest path through what events had to wait for, as HTA defines it.

    Parameters
    ----------
    trace
        One or more ranks, as :func:`load_kineto` reads them.
    annotation
        Only events in an annotation with this in its name, such as ``"ProfilerStep"``; empty for the whole trace.
    instance
        Number of that annotation from 0 in the order of time, or the first and the last of several; by default 0.
    rank
        Only this rank. By default the walk runs over all ranks, through the last one to arrive at each collective, and
        the longest path is that of the rank that ended last.
    data_loading
        Regular expressions for the names of events on the CPU that load data.

    Raises
    ------
    UnknownRankError, UnknownAnnotationError
        If there is no such rank, annotation or instance; the message lists those that exist.
    EmptyTraceError
        If nothing in that part of the trace takes time.
    ValueError
        If an instance is asked for without an annotation, or a pattern is no regular expression.
    """
    patterns = (data_loading,) if isinstance(data_loading, str) else tuple(data_loading or ())
    question = TorchQuestion(annotation, instance, rank, patterns)
    question.check()
    trace = KinetoTrace(tuple(repaired(rank) for rank in trace.ranks))
    ranks = trace.ranks if rank is None else (trace.rank(rank),)
    regions = [(rank, find_region(rank, annotation, instance)) for rank in ranks]
    graphs = tuple(build_graph(rank, region, data_loading=patterns) for rank, region in regions)
    return TorchCriticalPath._of_graphs(trace, question, graphs)
