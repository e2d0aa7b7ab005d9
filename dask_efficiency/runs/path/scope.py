"""Scope: the interval of a trace that a critical path explains, and the run that ended it."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool
from dask_efficiency.runs.trace.clients import heard_by_clients
from dask_efficiency.runs.trace.errors import EmptyTraceError, UnknownNameError
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import PHASES, RunOutcome

_GATHER = PHASES.index("gather")


@dataclass(frozen=True, slots=True)
class Scope:
    """Interval of a trace, in nanoseconds since the epoch."""

    start: int
    stop: int
    #: Position of the run whose report ends it; MISSING where none does.
    run: int
    #: Position in the trace's phases of the gather that ends it; MISSING where a report does.
    gather: int = MISSING


@dataclass(frozen=True, slots=True)
class Question:
    """Request to explain a task, a span or a window, of which at most one is given; else all of a trace."""

    target: str | None = None
    span: str | None = None
    window: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} are given; expected one of them at most")

    def scope(self, trace: RunTrace) -> Scope:
        """Find the interval of a trace that answers it."""
        if self.target is not None:
            task = next((i for i, key in enumerate(trace.keys) if key == self.target), None)
            if task is None:
                raise UnknownNameError("task", self.target, trace.keys[:21])
            return _scope_of_tasks(trace, np.arange(len(trace.tasks)) == task, f"the task {self.target[:80]!r}")
        if self.span is not None:  # with the spans in it
            spans = [i for i, span in enumerate(trace.spans) if f"{span}/".startswith(f"{self.span}/")]
            if not spans:
                raise UnknownNameError("span", self.span, trace.spans)
            return _scope_of_tasks(trace, np.isin(trace.tasks.span, spans), f"the span {self.span[:80]!r}")
        return whole_scope(trace) if self.window is None else scope_of_window(trace, *self.window)


def whole_scope(trace: RunTrace) -> Scope:
    """Find the scope from a client's first activity to the last result."""
    if trace.stop <= trace.start:
        raise EmptyTraceError(f"the trace {trace.name[:80]!r} ends when it starts")
    return scope_of_window(trace, trace.start, trace.stop)


def scope_of_window(trace: RunTrace, start: int, stop: int) -> Scope:
    """Find the scope from a client's first activity in a window, or its start if work went on, to the last result."""
    if not start < stop:
        expected = "expected its start before its stop, nanoseconds since the epoch"
        raise ValueError(f"window is ({start}, {stop}); {expected}")
    reported, phases = trace.runs.reported, trace.phases
    done = (reported > start) & (reported <= stop)
    gathers = (phases.phase == _GATHER) & (phases.stop > start) & (phases.stop <= stop)
    if not done.any():
        what = f"ended between {start} and {stop}" if len(trace.runs) else "ran"
        raise EmptyTraceError(f"no task {what} in the trace {trace.name[:80]!r}")
    heard = done & heard_by_clients(trace)
    run = _latest(reported, heard if heard.any() else done)
    gather = _latest(phases.stop, gathers) if gathers.any() else MISSING
    if gather != MISSING and phases.stop[gather] < reported[run]:
        gather = MISSING
    end = int(phases.stop[gather] if gather != MISSING else reported[run])
    return Scope(_begin(trace, start, end), end, run, gather)


def _scope_of_tasks(trace: RunTrace, chosen: Bool, what: str) -> Scope:
    """Find the scope that ends with the last report of some tasks."""
    runs, graphs, phases = trace.runs, trace.graphs, trace.phases
    done = np.isin(runs.task, np.flatnonzero(chosen)) & (runs.reported != MISSING)
    if not done.any():
        raise EmptyTraceError(f"{what} did not end in the trace {trace.name[:80]!r}")
    good = done & (runs.outcome == RunOutcome.SUCCEEDED)
    run = _latest(runs.reported, good if good.any() else done)
    stop = int(runs.reported[run])
    brought = trace.tasks.graph[chosen]
    first = int(brought[brought != MISSING].min(initial=len(graphs)))
    begin = trace.start
    if first < len(graphs):
        # The client's own work on the first of the graphs counts too.
        mine = (phases.client == graphs.client[first]) & (phases.phase == _GATHER)
        before = phases.stop[mine & (phases.stop <= graphs.received[first])]
        begin = max(begin, int(before.max(initial=MISSING)))
    return Scope(_begin(trace, begin, stop), stop, run)


def _begin(trace: RunTrace, start: int, stop: int) -> int:
    """Find the instant at which work began between two others."""
    runs = trace.runs
    if ((runs.assigned != MISSING) & (runs.assigned <= start) & (runs.reported > start)).any():
        return start
    instants = np.concatenate([trace.phases.start, trace.graphs.received, runs.assigned])
    inside = instants[(instants >= start) & (instants <= stop)]
    return int(inside.min()) if len(inside) else start


def _latest(column: np.ndarray[tuple[int], np.dtype[np.int64]], among: Bool) -> int:
    rows = np.flatnonzero(among)
    return int(rows[np.argmax(column[rows])])
