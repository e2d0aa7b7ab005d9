"""The stretches of a path: the time of a window in order and without gaps, and sums over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Self

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Column, ColumnTable, Int8, Int32, Int64
from dask_efficiency.gpu.intervals import IntervalArrays, intersection, length, union
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import GPU_WORK, KinetoTrace
from dask_efficiency.torch_traces.path.graph import TorchGraph

#: Stands for no event or rank.
NOBODY = "-"

#: Names of groupings.
GROUPS = ("kind", "name", "rank")


class RawStretches(NamedTuple):
    """Stretches between the instants of a walk, in order, some without length; not yet joined."""

    #: Nanoseconds, ascending; one more than there are stretches.
    bounds: Int64
    kind: Int8
    event: Int32
    inferred: Bool
    #: An event on its thread; missing where it is on none.
    on_thread_of: Int32

    def cut(self, at: Int64) -> RawStretches:
        """Cut stretches at more instants."""
        bounds = np.sort(np.concatenate([self.bounds, np.clip(at, self.bounds[0], self.bounds[-1])]))
        which = np.minimum(np.searchsorted(self.bounds, bounds[:-1], side="right"), len(self.kind)) - 1
        return RawStretches(bounds, self.kind[which], self.event[which], self.inferred[which], self.on_thread_of[which])


@dataclass(frozen=True, slots=True, repr=False)
class TorchStretches(ColumnTable):
    """A row for each stretch of a tiling walk; each begins where the one before it stops."""

    #: Position in :data:`~dask_efficiency.runs.path.kinds.KINDS`.
    kind: Int8
    #: Nanoseconds on the clock of the job (of one rank: its own).
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: Position in :attr:`~dask_efficiency.torch_traces.kineto.trace.KinetoTrace.ranks`.
    rank: Int32
    #: Row of the event whose time it is; missing where it belongs to none.
    event: Int32
    #: True if the walk came here by an inferred wait.
    inferred: Bool

    @classmethod
    def between(cls, bounds: Int64, *, kind: Int8, rank: Int32, event: Int32, inferred: Bool) -> Self:
        """Build from the instants between stretches; drops those without length and joins equal neighbours."""
        lasting = bounds[1:] > bounds[:-1]
        stretches = cls(kind, bounds[:-1], bounds[1:], rank, event, inferred).take(lasting)
        changes = np.zeros(len(stretches), bool)
        changes[:1] = True
        for column in (stretches.kind, stretches.rank, stretches.event, stretches.inferred):
            changes[1:] |= column[1:] != column[:-1]
        first = stretches.take(changes)
        return replace(first, stop=np.append(first.start[1:], stretches.stop[-1:]))


def seconds_by(by: str, stretches: TorchStretches, trace: KinetoTrace) -> dict[str, float]:
    """Seconds of each group of :data:`GROUPS`, largest first; time in no group is under :data:`NOBODY`."""
    position, names = _grouped(by, stretches, trace)
    added = np.zeros(len(names) + 1, np.int64)
    np.add.at(added, position, stretches.stop - stretches.start)
    by_group = {name: ns for name, ns in zip([*names, NOBODY], added.tolist(), strict=True) if ns}
    return {name: ns / 1e9 for name, ns in sorted(by_group.items(), key=lambda item: (-item[1], item[0]))}


def _grouped(by: str, stretches: TorchStretches, trace: KinetoTrace) -> tuple[Int64, list[str]]:
    """Group of each stretch as a position in a list of names; missing where it is in none."""
    if by == "kind":
        return stretches.kind.astype(np.int64), [str(kind) for kind in KINDS]
    if by == "rank":
        return stretches.rank.astype(np.int64), [str(rank.rank) for rank in trace.ranks]
    if by != "name":
        raise ValueError(f"by is {by!r}; expected one of {', '.join(GROUPS)}")
    numbers: dict[str, int] = {}
    group = np.full(len(stretches), MISSING, np.int64)
    for position, rank in enumerate(trace.ranks):
        rows = np.flatnonzero((stretches.rank == position) & (stretches.event != MISSING))
        distinct, which = np.unique(rank.events.name[stretches.event[rows]], return_inverse=True)
        known = [numbers.setdefault(rank.names[name], len(numbers)) for name in distinct.tolist()]
        group[rows] = np.array(known, np.int64)[which]
    return group, list(numbers)


def in_figures(seconds: float) -> str:
    """Duration in three figures or more: ``"9.57 ms"``, ``"929 ms"``, ``"1.23 s"``, ``"4321 s"``."""
    value, unit = (seconds, "s") if seconds >= 0.9995 else (1e3 * seconds, "ms")
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"


def gpu_seconds_during(
    kind: Kind, stretches: TorchStretches, graphs: Sequence[TorchGraph], positions: Sequence[int], offset: Sequence[int]
) -> float:
    """Seconds of a path's time of a kind in which the GPUs of its rank had work that ran, exchanges included."""
    overlap = 0
    for graph, position in zip(graphs, positions, strict=True):
        mine = (stretches.rank == position) & (stretches.kind == KINDS.index(kind))
        events, shift = graph.trace.events, offset[position]
        works = np.isin(events.category, GPU_WORK)
        busy = union(events.start[works] + shift, events.stop[works] + shift)
        overlap += length(intersection(IntervalArrays(stretches.start[mine], stretches.stop[mine]), busy))
    return overlap / 1e9
