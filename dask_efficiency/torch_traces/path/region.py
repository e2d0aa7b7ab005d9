"""The part of a trace that a path explains: an annotation or all of it; and the steps of the profiler."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Column, ColumnTable, Int32, Int64
from dask_efficiency.torch_traces.kineto.errors import UnknownAnnotationError
from dask_efficiency.torch_traces.kineto.trace import CALLS, NAMED_BY_PROGRAMS, SAY_NOTHING, Category, RankTrace
from dask_efficiency.torch_traces.path.graph import Region
from dask_efficiency.torch_traces.path.roles import events_named

#: Categories to look for a name in, the first one that has it. Old versions have annotations among the operators.
_CAN_BE_NAMED = (Category.ANNOTATION, Category.OPERATOR, Category.PYTHON)

#: Categories of events on threads.
ON_THREADS = (Category.OPERATOR, Category.ANNOTATION, Category.PYTHON, *CALLS)

#: Names that a message lists (a few lines).
MAX_LISTED = 20

#: Name of a step of ``torch.profiler`` with a schedule. Longer numbers do not fit into 32 bits.
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")


@dataclass(frozen=True, slots=True)
class TorchQuestion:
    """Request to explain a part of a trace."""

    #: Part of an annotation's name; empty for all of the trace.
    annotation: str = ""
    #: Number of the instance, or the first and the last of several.
    instance: int | tuple[int, int] | None = None
    #: Number of the only rank; None for all.
    rank: int | None = None
    #: Patterns (regular expressions) of the names of events that load data.
    data_loading: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ValueError for an instance without an annotation, and for an invalid pattern."""
        if self.instance is not None and not self.annotation:
            raise ValueError(f"instance is {self.instance}, but no annotation is named of which that would be one")
        for pattern in self.data_loading:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"data_loading has {pattern!r}, which is no regular expression: {error}") from error


def find_region(trace: RankTrace, annotation: str = "", instance: int | tuple[int, int] | None = None) -> Region:
    """Find the events in some instances of an annotation, an operator or a function with a part of its name, or in all.

    Events on threads that begin in the window, both ends included, and take any time; and the work on a GPU and
    synchronisations that a call among them asked for. ``instance`` counts from 0 in the order of time.
    UnknownAnnotationError lists those that exist. HTA's ``critical_path_analysis`` takes every event with such a name
    in the order of the file, so that the GPU's part of the same annotation counts as another instance, and keeps one
    kernel of a graph.
    """
    events = trace.events
    if annotation:
        chosen, which = _instances(trace, annotation, instance)
        start, stop = int(events.start[chosen].min()), int(events.stop[chosen].max())
        description = f"{annotation} {which}"
    else:
        known = ~np.isin(events.category, SAY_NOTHING)
        start = int(events.start[known].min()) if known.any() else 0
        stop = int(events.stop[known].max()) if known.any() else 0
        description = "the whole trace"
    begins = (events.start >= start) & (events.start <= stop)
    on_threads = begins & (events.stop > events.start) & np.isin(events.category, ON_THREADS)
    asked_for = events.has_call & on_threads[events.call]
    return Region(start, stop, np.flatnonzero(on_threads | asked_for).astype(np.int32), description)


def _instances(
    trace: RankTrace, annotation: str, instance: int | tuple[int, int] | None
) -> tuple[NDArray[np.intp], str]:
    """Rows of the chosen instances, and their numbers in words."""
    instances = _named(trace, annotation)
    if not instances.size:
        known = ", ".join(_listed(trace, np.flatnonzero(trace.events.category == Category.ANNOTATION))) or "none"
        raise UnknownAnnotationError(f"no annotation has {annotation!r} in its name; there is: {known}")
    first, last = instance if isinstance(instance, tuple) else (instance or 0, instance or 0)
    if not 0 <= first <= last < len(instances):
        wanted = f"{first} to {last}" if isinstance(instance, tuple) else str(first)
        raise UnknownAnnotationError(
            f"no instance {wanted} of {annotation!r}; there is: 0"
            + (f" to {len(instances) - 1}" if len(instances) > 1 else "")
            + f" ({', '.join(_listed(trace, instances))})"
        )
    return instances[first : last + 1], str(first) if first == last else f"{first} to {last}"


def _named(trace: RankTrace, annotation: str) -> NDArray[np.intp]:
    """Rows with that part in their names, in the order of time."""
    events = trace.events
    wanted = events_named(trace, lambda name: annotation in name)
    for category in _CAN_BE_NAMED:
        rows = np.flatnonzero(wanted & (events.category == category))
        if rows.size:
            return events.by_start(rows)
    return np.empty(0, np.intp)


def _listed(trace: RankTrace, rows: NDArray[np.intp]) -> list[str]:
    """The most frequent names of events, with their counts."""
    counts = Counter(trace.names[name] for name in trace.events.name[rows])
    listed = [
        f"{name!r} ({count} times)" if count > 1 else repr(name) for name, count in counts.most_common(MAX_LISTED)
    ]
    return [*listed, "..."] if len(counts) > MAX_LISTED else listed


@dataclass(frozen=True, slots=True, repr=False)
class ProfilerSteps(ColumnTable):
    """A row for each step, in time order, on the rank's clock."""

    #: The profiler's count since the program began, the same on all ranks.
    number: Int32
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]


def steps_of(trace: RankTrace) -> ProfilerSteps:
    """Steps of the profiler on a rank; none without a schedule."""
    numbers = {position: int(step[1]) for position, name in enumerate(trace.names) if (step := _STEP.match(name))}
    events = trace.events
    rows = np.flatnonzero(np.isin(events.category, NAMED_BY_PROGRAMS) & np.isin(events.name, list(numbers)))
    rows = events.by_start(rows)
    number = np.array([numbers[int(name)] for name in events.name[rows]], np.int32)
    return ProfilerSteps(number, events.start[rows], events.stop[rows])


def step_at(steps: ProfilerSteps, at: Int64) -> Int32:
    """Number of the step that each instant is in; missing outside of steps."""
    if not len(steps):
        return np.full(len(at), MISSING, np.int32)
    row = np.searchsorted(steps.start, at, side="right") - 1
    inside = (row >= 0) & (at < steps.stop[row])
    return np.where(inside, steps.number[row], MISSING).astype(np.int32)
