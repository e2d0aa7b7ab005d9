"""DataFlow: when operators could have begun, had they waited for nothing but the data they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Column, Float64, Int32, Int64, Table
from dask_efficiency.torch_traces.kineto.execution import DataDependencies, ExecutionTrace
from dask_efficiency.torch_traces.kineto.numbers import first_with
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.graph import Region
from dask_efficiency.torch_traces.path.lanes import pairs_ranked
from dask_efficiency.torch_traces.path.ordering import before_any_circle


@dataclass(frozen=True, slots=True, repr=False)
class DataOperators(Table):
    """A row for each operator of which both what it read and how long it took are known, in the order they began.

    Of Chakra's traces that say durations, a row for every node that is no metadata.
    """

    #: Row in the execution trace's nodes.
    node: Int32
    #: Row of the event; missing where only the execution trace says how long it took.
    event: Int32
    #: Position in the execution trace's names.
    name: Int32
    #: Nanoseconds on the rank's clock: of the work on the GPU that it asked for; if it asked for none, of itself.
    #: Missing where there is no event.
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: How long its work took. Nothing for an operator that only describes memory of a GPU anew, as a view does.
    duration: Annotated[Int64, Column(unit="nanoseconds")]
    #: When the last of those that it waits for had ended; the start of the first operator where there is none.
    ready: Annotated[Int64, Column(unit="nanoseconds")]
    #: When it could begin, if all before it had begun as early as their data allow.
    earliest: Annotated[Int64, Column(unit="nanoseconds")]


@dataclass(frozen=True, slots=True)
class DataFlow:
    """What data alone make operators wait for."""

    execution: ExecutionTrace
    operators: DataOperators
    #: Between operators, by their rows in :attr:`operators`.
    dependencies: DataDependencies
    #: The longest chain of operators that need one another's data: rows in :attr:`operators`, in order.
    longest: Int32

    @property
    def floor_seconds(self) -> float:
        """How long that chain takes: with the same operators, no order of them is over sooner."""
        return float(self.operators.duration[self.longest].sum()) / 1e9

    @property
    def earlier_seconds(self) -> Float64:
        """By how much each operator could begin earlier, seconds; NaN where its start is not known.

        Nothing for a view of a GPU's memory, which does not wait for what will be in it.
        """
        rows = self.operators
        return np.where(rows.start == MISSING, np.nan, np.maximum(rows.start - rows.earliest, 0) / 1e9)


def data_flow(trace: RankTrace, region: Region | None = None) -> DataFlow:
    """When each operator could have begun, and the time that data alone need.

    Parameters
    ----------
    trace
        With the execution trace that was recorded beside it.
    region
        Only operators in it; what was computed before it is there from its beginning.

    Raises
    ------
    ValueError
        If there is no execution trace, or its dependencies go in a circle.

    Notes
    -----
    Operators are the outermost ones that name their tensors, so what one does within itself stays in sequence. What
    Python decides from a value it has read is no dependency.
    """
    execution = trace.execution
    if execution is None:
        raise ValueError(f"{trace.path}: no execution trace was read beside it; give load_kineto an execution_trace")
    nodes = execution.nodes
    event = _events_of(trace, execution, region)
    # Chakra's nodes on a GPU are no operators of Kineto's, but have a duration; the others pass on what they wait for
    says_durations = region is None and bool((nodes.duration != MISSING).any())
    known = nodes.operator & ((event != MISSING) | says_durations)
    rows = np.flatnonzero(known)
    start, stop, duration = _work(trace, event[rows], nodes.on_device[rows])
    duration = np.where(nodes.duration[rows] != MISSING, nodes.duration[rows], duration)
    dependencies = _between(execution.dependencies, known)
    order = _order(dependencies, len(rows), nodes.number[rows])
    producers = _producers(dependencies, len(rows))
    earliest, longest = _longest(producers, order, duration)
    origin = int(start[start != MISSING].min(initial=np.iinfo(np.int64).max)) if (start != MISSING).any() else 0
    ready = np.full(len(rows), origin, np.int64)
    np.maximum.at(ready, dependencies.reader, stop[dependencies.producer])
    operators = DataOperators(
        node=rows.astype(np.int32),
        event=event[rows],
        name=nodes.name[rows],
        start=start,
        stop=stop,
        duration=duration,
        ready=ready,
        earliest=earliest + origin,
    )
    return DataFlow(execution, operators, dependencies, longest)


def _events_of(trace: RankTrace, execution: ExecutionTrace, region: Region | None) -> Int32:
    """Row of each node's event, by record function; MISSING where it was not recorded, or not in the region."""
    events = trace.events
    rows = np.arange(len(events)) if region is None else region.rows
    rows = rows[(events.category[rows] == Category.OPERATOR) & (events.record_function[rows] > 0)]
    place = first_with(events.record_function[rows], execution.nodes.record_function)
    return np.append(rows, MISSING)[place].astype(np.int32)


def _work(trace: RankTrace, event: Int32, on_device: Bool) -> tuple[Int64, Int64, Int64]:
    """When each operator's work began and ended, and how long it took; MISSING, MISSING and 0 without an event."""
    events = trace.events
    has = event != MISSING
    start = np.where(has, events.start[event], MISSING)
    stop = np.where(has, events.stop[event], MISSING)
    duration = np.where(has, stop - start, 0)
    work = np.flatnonzero(events.is_gpu_work & (events.call != MISSING))
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
    did = np.zeros(len(event), np.bool_)
    did[asked] = True
    # kernels of one operator may run beside each other
    busy = np.minimum(busy, last - first)
    return np.where(did, first, start), np.where(did, last, stop), np.where(did, busy, duration)


def _operators_of(trace: RankTrace, which: NDArray[np.intp], event: Int32, calls: Int32) -> NDArray[np.intp]:
    """The operator within which each call began on its thread, of those that do not overlap there."""
    events = trace.events
    if not len(which):
        return np.full(len(calls), MISSING, np.intp)
    both = np.concatenate([event, calls])
    lane = pairs_ranked(events.process[both], events.thread[both])
    begins = events.start[both] - int(events.start.min())
    key = lane.astype(np.int64) * (int(begins.max()) + 1) + begins
    order = np.argsort(key[: len(event)], kind="stable")
    place = np.searchsorted(key[: len(event)][order], key[len(event) :], side="right") - 1
    found = order[np.maximum(place, 0)]
    inside = (place >= 0) & (lane[found] == lane[len(event) :]) & (events.start[calls] < events.stop[event[found]])
    return np.where(inside, which[found], MISSING)


def _between(dependencies: DataDependencies, known: Bool) -> DataDependencies:
    """Those of which both operators are known, by their positions among these."""
    position = np.cumsum(known) - 1
    kept = dependencies.take(known[dependencies.producer] & known[dependencies.reader])
    return DataDependencies(
        producer=position[kept.producer].astype(np.int32), reader=position[kept.reader].astype(np.int32)
    )


def _producers(dependencies: DataDependencies, count: int) -> list[list[int]]:
    """What each operator waits for."""
    order = np.argsort(dependencies.reader, kind="stable")
    bounds = np.searchsorted(dependencies.reader[order], np.arange(1, count))
    return [part.tolist() for part in np.split(dependencies.producer[order], bounds)][:count]


def _order(dependencies: DataDependencies, count: int, numbers: Int64) -> Sequence[int]:
    """Operators so that each comes after those that it waits for."""
    if (dependencies.producer < dependencies.reader).all():
        return range(count)
    order = before_any_circle(count, dependencies.producer, dependencies.reader)
    if len(order) < count:
        stuck = np.setdiff1d(np.arange(count), order)
        raise ValueError(f"the data dependencies of node {numbers[stuck[0]]} go in a circle")
    found: list[int] = order.tolist()
    return found


def _longest(producers: list[list[int]], order: Sequence[int], duration: Int64) -> tuple[Int64, Int32]:
    """When each operator can begin, after the first; and the longest chain."""
    earliest, durations = [0] * len(producers), duration.tolist()
    after = [MISSING] * len(producers)
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
