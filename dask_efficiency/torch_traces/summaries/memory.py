"""Memory: what PyTorch's allocators gave out and reserved over time, where the profiler was asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Column, ColumnTable, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import MemoryEvents, RankTrace
from dask_efficiency.torch_traces.summaries.groups import MOST_BYTES, Groups, joined

#: Parts of a rank's time of which each has a row for the largest figures in it: what a chart shows.
PARTS = 200


@dataclass(frozen=True, slots=True, repr=False)
class MemoryPeaks(ColumnTable):
    """A row for each device of each rank."""

    #: Number in the job.
    rank: Int32
    #: PyTorch's number of the kind of device, 0 for the CPU, and the number of the device.
    device_type: Int32
    device: Int32
    #: Number of allocations, and their bytes.
    allocations: Int64
    nbytes: Annotated[Int64, Column(unit="bytes")]
    #: Largest figures, and the last ones; missing where the trace lacks them.
    peak_allocated: Annotated[Int64, Column(unit="bytes")]
    peak_reserved: Annotated[Int64, Column(unit="bytes")]
    last_allocated: Annotated[Int64, Column(unit="bytes")]
    #: Instant of the largest, on the rank's clock, from the first event of memory.
    peak_after: Annotated[Int64, Column(unit="nanoseconds")]


@dataclass(frozen=True, slots=True, repr=False)
class AllocatorTimeline(ColumnTable):
    """A row for each of :data:`PARTS` of a rank's time with an event, and device: the largest figures in it."""

    rank: Int32
    device_type: Int32
    device: Int32
    #: Where the part begins, from the first event of memory.
    after: Annotated[Int64, Column(unit="nanoseconds")]
    allocated: Annotated[Int64, Column(unit="bytes")]
    reserved: Annotated[Int64, Column(unit="bytes")]


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one rank or of all."""

    peaks: MemoryPeaks
    timeline: AllocatorTimeline


def memory_of(trace: RankTrace) -> Memory:
    """Sum up the memory of a rank; empty tables where it was not profiled."""
    memory = trace.memory.take(np.argsort(trace.memory.at, kind="stable"))
    if not len(memory):
        return Memory(MemoryPeaks.empty(), AllocatorTimeline.empty())
    after = memory.at - memory.at[0]
    return Memory(_peaks(trace.rank, memory, after), _timeline(trace.rank, memory, after))


def _peaks(rank: int, memory: MemoryEvents, after: Int64) -> MemoryPeaks:
    groups = Groups.of(memory.device_type, memory.device)
    last = groups.order[np.append(groups.begins[1:], len(groups.order)) - 1]
    reached = groups.largest(memory.allocated)
    at_peak = memory.allocated[groups.order] == np.repeat(reached, groups.sizes)
    first_at_peak = np.minimum.reduceat(np.where(at_peak, after[groups.order], after[-1]), groups.begins)
    given = np.where((memory.nbytes > 0) & (memory.nbytes <= MOST_BYTES), memory.nbytes, 0)
    return MemoryPeaks(
        np.full(len(last), rank),
        memory.device_type[last],
        memory.device[last],
        groups.sums((given > 0).astype(np.int64)),
        groups.sums(given),
        reached,
        groups.largest(memory.reserved),
        memory.allocated[last],
        np.where(reached == MISSING, MISSING, first_at_peak),
    )


def _timeline(rank: int, memory: MemoryEvents, after: Int64) -> AllocatorTimeline:
    known = memory.allocated != MISSING
    memory, after = memory.take(known), after[known]
    width = int(after.max(initial=0)) // PARTS + 1
    groups = Groups.of(memory.device_type, memory.device, after // width)
    first = groups.first
    return AllocatorTimeline(
        np.full(len(first), rank),
        memory.device_type[first],
        memory.device[first],
        after[first] // width * width,
        groups.largest(memory.allocated),
        groups.largest(memory.reserved),
    )


def merged_memory(parts: Sequence[Memory]) -> Memory:
    """Tables of several ranks, one after another."""
    return Memory(joined([part.peaks for part in parts]), joined([part.timeline for part in parts]))
