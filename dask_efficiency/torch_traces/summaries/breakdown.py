"""TimeParts: a rank's time as compute, communication, copies and idle time, which add up to it exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from dask_efficiency.accounts.tables import Bool, Column, ColumnTable, Int64
from dask_efficiency.gpu.intervals import IntervalArrays, difference, intersection, time_before, union
from dask_efficiency.torch_traces.kineto.trace import SAY_NOTHING, Category, RankTrace
from dask_efficiency.torch_traces.path.roles import asks_for_collectives, cpu_collectives, gpu_collectives


class Activity(NamedTuple):
    """Disjoint sets of instants by what a rank did; in the rest of its window it was idle."""

    #: It computed, and exchanged nothing.
    compute: IntervalArrays
    #: It computed while it exchanged data: communication that costs nothing.
    hidden: IntervalArrays
    #: It exchanged data, or waited for other ranks in a collective, and computed nothing.
    exposed: IntervalArrays
    #: It copied or filled memory, and nothing else.
    copies: IntervalArrays

    @property
    def busy(self) -> IntervalArrays:
        """The instants at which it did anything."""
        return together(*self)


def together(*sets: IntervalArrays) -> IntervalArrays:
    """Instants in any of some sets."""
    return union(*(np.concatenate(ends) for ends in zip(*sets, strict=True)))


def covered(trace: RankTrace, wanted: Bool) -> IntervalArrays:
    """Instants at which any of some events lasts."""
    return union(trace.events.start[wanted], trace.events.stop[wanted])


def has_gpu_work(trace: RankTrace) -> bool:
    """True if the trace shows any work on a GPU."""
    return bool(trace.events.is_gpu_work.any())


def activity_of(trace: RankTrace) -> Activity:
    """Find the activity of a rank's GPUs, several together; without work on a GPU, that of its threads.

    On threads, operators compute but those that ask for a collective or wait for it, and collectives of the CPU's
    backends (Gloo, MPI, UCC) exchange data.
    """
    category = trace.events.category
    if has_gpu_work(trace):
        exchanges = gpu_collectives(trace)
        computes = (category == Category.KERNEL) & ~exchanges
    else:
        exchanges = cpu_collectives(trace)
        computes = (category == Category.OPERATOR) & ~exchanges & ~asks_for_collectives(trace)
    compute, communication = covered(trace, computes), covered(trace, exchanges)
    copies = difference(covered(trace, np.isin(category, (Category.COPY, Category.FILL))), compute)
    return Activity(
        difference(compute, communication),
        intersection(compute, communication),
        difference(communication, compute),
        difference(copies, communication),
    )


def window_of(trace: RankTrace) -> tuple[int, int]:
    """First start and last end of all events that say something."""
    known = ~np.isin(trace.events.category, SAY_NOTHING)
    if not known.any():
        return 0, 0
    return int(trace.events.start[known].min()), int(trace.events.stop[known].max())


@dataclass(frozen=True, slots=True, repr=False)
class TimeParts(ColumnTable):
    """A row for each window: ``compute``, ``hidden``, ``exposed``, ``copies`` and ``idle`` add up to its length."""

    #: On the rank's clock.
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: As in :class:`Activity`.
    compute: Annotated[Int64, Column(unit="nanoseconds")]
    hidden: Annotated[Int64, Column(unit="nanoseconds")]
    exposed: Annotated[Int64, Column(unit="nanoseconds")]
    copies: Annotated[Int64, Column(unit="nanoseconds")]
    idle: Annotated[Int64, Column(unit="nanoseconds")]

    @classmethod
    def of(cls, activity: Activity, windows: IntervalArrays, **more: Any) -> Self:
        """Break some windows of a rank down; ``more`` are columns of a subclass."""
        parts = {name: seen_in(windows, found) for name, found in activity._asdict().items()}
        idle = windows.lengths - sum(parts.values())
        return cls(start=windows.start, stop=windows.stop, **parts, idle=idle, **more)

    @property
    def length(self) -> Int64:
        """Length of each window."""
        return self.stop - self.start


def seen_in(windows: IntervalArrays, found: IntervalArrays) -> Int64:
    """Nanoseconds of a set in each window."""
    return time_before(found, windows.stop) - time_before(found, windows.start)
