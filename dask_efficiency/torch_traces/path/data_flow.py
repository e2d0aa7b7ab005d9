"""DataFlow: the earliest starts of operators that wait for nothing but their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Column, ColumnTable, Float64, Int32, Int64
from dask_efficiency.torch_traces.kineto.execution import DataDependencies, ExecutionTrace
from dask_efficiency.torch_traces.kineto.numbers import first_with, mask_of
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.graph import Region, before_any_cycle
from dask_efficiency.torch_traces.path.lanes import rank_pairs


@dataclass(frozen=True, slots=True, repr=False)
class DataOperators(ColumnTable):
    """A row for each operator whose reads and duration are known (of Chakra's, all but metadata), as they began."""

    #: Row in the execution trace's nodes.
    node: Int32
    #: Row of the event; missing where only the execution trace has the duration.
    event: Int32
    #: Position in the execution trace's names.
    name: Int32
    #: Of the work on the GPU that it asked for, or else of itself, on the rank's clock; missing without an event.
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: Duration of its work; 0 for an operator that only describes memory of a GPU anew, such as a view.
    duration: Annotated[Int64, Column(unit="nanoseconds")]
    #: End of the last operator that it waits for; if there is none, the start of the first operator.
    ready: Annotated[Int64, Column(unit="nanoseconds")]
    #: Earliest start, if all before it start as early as their data allow.
    earliest: Annotated[Int64, Column(unit="nanoseconds")]


@dataclass(frozen=True, slots=True)
class DataFlow:
    """Waits of operators for data alone."""

    execution: ExecutionTrace
    operators: DataOperators
    #: Between operators, by their rows in :attr:`operators`.
    dependencies: DataDependencies
    #: The longest chain of operators that need one another's data: rows in :attr:`operators`, in order.
    longest: Int32

    @property
    def floor_seconds(self) -> float:
        """Duration of that chain: no order of the same operators ends sooner."""
        return float(self.operators.duration[self.longest].sum()) / 1e9

    @property
    def earlier_seconds(self) -> Float64:
        """Seconds by which each operator could start earlier; 0 for a view of a GPU's memory, NaN if unknown."""
        rows = self.operators
        return np.where(rows.start == MISSING, np.nan, np.maximum(rows.start - rows.earliest, 0) / 1e9)


def data_flow(trace: RankTrace, region: Region | None = None) -> DataFlow:
    """Find the earliest start of each operator, and the time that data alone need.

    With a region, only operators in it count, and data from before it are there when it begins. Operators are the
    outermost ones that name their tensors; operators within them stay in sequence. Decisions of Python that depend on
    values are no dependency. Raises ValueError if there is no execution trace, or its dependencies have a cycle.
    """
    execution = trace.execution
    if execution is None:
        raise ValueError(f"{trace.path}: it was read without an execution trace; give load_kineto an execution_trace")
    nodes = execution.nodes
    # by record function; missing where it was not recorded or is outside of the region
    events = trace.events
    rows = np.arange(len(events)) if region is None else region.rows
    rows = rows[(events.category[rows] == Category.OPERATOR) & (events.record_function[rows] > 0)]
    place = first_with(events.record_function[rows], nodes.record_function)
    event = np.append(rows, MISSING)[place].astype(np.int32)
    # Chakra's nodes on a GPU are no operators in Kineto's trace, but have a duration; the others pass on dependencies
    has_durations = region is None and bool((nodes.duration != MISSING).any())
    known = nodes.operator & ((event != MISSING) | has_durations)
    rows = np.flatnonzero(known)
    start, stop, duration = _work(trace, event[rows], nodes.on_device[rows])
    duration = np.where(nodes.duration[rows] != MISSING, nodes.duration[rows], duration)
    kept = execution.dependencies
    kept = kept.take(known[kept.producer] & known[kept.reader])
    position = (np.cumsum(known) - 1).astype(np.int32)
    dependencies = DataDependencies(position[kept.producer], position[kept.reader])
    order = _order(dependencies, len(rows), nodes.number[rows])
    earliest, longest = _longest(dependencies, order, duration)
    origin = int(start[start != MISSING].min(initial=np.iinfo(np.int64).max)) if (start != MISSING).any() else 0
    ready = np.full(len(rows), origin, np.int64)
    np.maximum.at(ready, dependencies.reader, stop[dependencies.producer])
    own = rows.astype(np.int32), event[rows], nodes.name[rows]
    operators = DataOperators(*own, start, stop, duration, ready, earliest + origin)
    return DataFlow(execution, operators, dependencies, longest)


def _work(trace: RankTrace, event: Int32, on_device: Bool) -> tuple[Int64, Int64, Int64]:
    """Start, end and duration of each operator's work; MISSING, MISSING and 0 without an event."""
    events = trace.events
    has = event != MISSING
    start = np.where(has, events.start[event], MISSING)
    stop = np.where(has, events.stop[event], MISSING)
    duration = np.where(has, stop - start, 0)
    work = np.flatnonzero(events.is_gpu_work & events.has_call)
    if not len(work):
        return start, stop, duration
    duration[on_device] = 0
    asked = _operators_of(trace, np.flatnonzero(has), event[has], events.call[work])
    work, asked = work[asked != MISSING], asked[asked != MISSING]
    first = np.full(len(event), np.iinfo(np.int64).max)
    last, busy = np.zeros(len(event), np.int64), np.zeros(len(event), np.int64)
    np.minimum.at(first, asked, events.start[work])
    np.maximum.at(last, asked, events.stop[work])
    np.add.at(busy, asked, events.stop[work] - events.start[work])
    did = mask_of(asked, len(event))
    # kernels of one operator may overlap
    busy = np.minimum(busy, last - first)
    return np.where(did, first, start), np.where(did, last, stop), np.where(did, busy, duration)


def _operators_of(trace: RankTrace, which: NDArray[np.intp], event: Int32, calls: Int32) -> NDArray[np.intp]:
    """Operator within which each call began on its thread; operators must not overlap there."""
    events = trace.events
    if not len(which):
        return np.full(len(calls), MISSING, np.intp)
    both = np.concatenate([event, calls])
    lane = rank_pairs(events.process[both], events.thread[both])
    begins = events.start[both] - int(events.start.min())
    key = lane.astype(np.int64) * (int(begins.max()) + 1) + begins
    order = np.argsort(key[: len(event)], kind="stable")
    place = np.searchsorted(key[: len(event)][order], key[len(event) :], side="right") - 1
    begun = order[np.maximum(place, 0)]
    inside = (place >= 0) & (lane[begun] == lane[len(event) :]) & (events.start[calls] < events.stop[event[begun]])
    return np.where(inside, which[begun], MISSING)


def _order(dependencies: DataDependencies, count: int, numbers: Int64) -> Sequence[int]:
    """Order in which each operator comes after those that it waits for."""
    if (dependencies.producer < dependencies.reader).all():
        return range(count)
    order = before_any_cycle(count, dependencies.producer, dependencies.reader)
    if len(order) < count:
        stuck = np.setdiff1d(np.arange(count), order)
        raise ValueError(f"the data dependencies of node {numbers[stuck[0]]} have a cycle")
    rows: list[int] = order.tolist()
    return rows


def _longest(dependencies: DataDependencies, order: Sequence[int], duration: Int64) -> tuple[Int64, Int32]:
    """Earliest start of each operator after the first start; and the longest chain."""
    by_reader = dependencies.take(np.argsort(dependencies.reader, kind="stable"))
    bounds = np.searchsorted(by_reader.reader, np.arange(1, len(duration)))
    producers = [part.tolist() for part in np.split(by_reader.producer, bounds)]
    earliest, durations = [0] * len(duration), duration.tolist()
    after = [MISSING] * len(duration)
    for row in order:
        for producer in producers[row]:
            end = earliest[producer] + durations[producer]
            if end > earliest[row] or after[row] == MISSING:
                earliest[row], after[row] = end, producer
    ends = np.array(earliest, np.int64) + duration
    chain = [int(np.argmax(ends))] if len(ends) else []
    while chain and after[chain[-1]] != MISSING:
        chain.append(after[chain[-1]])
    return np.array(earliest, np.int64), np.array(chain[::-1], np.int32)
