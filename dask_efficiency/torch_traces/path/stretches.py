"""The stretches of a path: the time of a window in order and without gaps, and sums over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Self

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Column, Int8, Int32, Int64, Table
from dask_efficiency.gpu.intervals import Intervals, intersection, length, union
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import GPU_WORK, KinetoTrace
from dask_efficiency.torch_traces.path.graph import TorchGraph


class RawStretches(NamedTuple):
    """The time between instants, in order; pieces may take no time."""

    #: Nanoseconds, ascending; one more than there are pieces.
    bounds: Int64
    kind: Int8
    event: Int32
    inferred: Bool
    #: An event on whose thread it is; missing for what is on no thread.
    on_thread_of: Int32

    def cut(self, at: Int64) -> RawStretches:
        """The same with more bounds."""
        bounds = np.sort(np.concatenate([self.bounds, np.clip(at, self.bounds[0], self.bounds[-1])]))
        which = np.searchsorted(self.bounds, bounds[:-1], side="right") - 1
        which = np.minimum(which, len(self.kind) - 1)
        return RawStretches(bounds, self.kind[which], self.event[which], self.inferred[which], self.on_thread_of[which])


@dataclass(frozen=True, slots=True, repr=False)
class TorchStretches(Table):
    """A row for each stretch of a tiling walk; each begins where the one before it stops."""

    #: Position in :data:`~dask_efficiency.runs.path.kinds.KINDS`.
    kind: Int8
    #: Nanoseconds on the clock of the job (of one rank: its own).
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: Position in :attr:`~dask_efficiency.torch_traces.kineto.trace.KinetoTrace.ranks`.
    rank: Int32
    #: Row of the event whose time it is; missing where it is no event's.
    event: Int32
    #: Whether the walk came here by an edge that was inferred.
    inferred: Bool

    @classmethod
    def between(cls, bounds: Int64, *, kind: Int8, rank: Int32, event: Int32, inferred: Bool) -> Self:
        """From the instants between stretches, ascending, one more than there are stretches.

        Stretches that take no time are left out, and equal ones in a row are one.
        """
        lasting = bounds[1:] > bounds[:-1]
        pieces = cls(kind, bounds[:-1], bounds[1:], rank, event, inferred).take(lasting)
        changes = np.zeros(len(pieces), bool)
        changes[:1] = True
        for column in (pieces.kind, pieces.rank, pieces.event, pieces.inferred):
            changes[1:] |= column[1:] != column[:-1]
        first = pieces.take(changes)
        return replace(first, stop=np.append(first.start[1:], pieces.stop[-1:]))

    def seconds(self) -> dict[Kind, float]:
        """Seconds of each kind that there is, most first."""
        nanoseconds = np.bincount(self.kind, weights=self.stop - self.start, minlength=len(KINDS))
        found = np.flatnonzero(np.bincount(self.kind, minlength=len(KINDS)))
        return {KINDS[i]: float(nanoseconds[i]) / 1e9 for i in found[np.argsort(-nanoseconds[found], kind="stable")]}


#: Stands for no event.
NOBODY = "-"

#: What stretches can be grouped by.
GROUPS = ("kind", "name", "rank")


def seconds_by(by: str, stretches: TorchStretches, trace: KinetoTrace) -> dict[str, float]:
    """Seconds of each group, largest first; of what is in none under :data:`NOBODY`.

    Raises
    ------
    ValueError
        If ``by`` is none of :data:`GROUPS`.
    """
    position, names = _grouped(by, stretches, trace)
    added = np.zeros(len(names) + 1, np.int64)
    np.add.at(added, position, stretches.stop - stretches.start)
    found = {name: ns for name, ns in zip([*names, NOBODY], added.tolist(), strict=True) if ns}
    return {name: ns / 1e9 for name, ns in sorted(found.items(), key=lambda item: (-item[1], item[0]))}


def _grouped(by: str, stretches: TorchStretches, trace: KinetoTrace) -> tuple[Int64, list[str]]:
    """By stretch, the position of its group in a list of names; missing where it is in none."""
    if by == "kind":
        return stretches.kind.astype(np.int64), [str(kind) for kind in KINDS]
    if by == "rank":
        return stretches.rank.astype(np.int64), [str(rank.rank) for rank in trace.ranks]
    if by != "name":
        raise ValueError(f"by is {by!r}; expected one of {', '.join(GROUPS)}")
    numbers: dict[str, int] = {}
    found = np.full(len(stretches), MISSING, np.int64)
    for position, rank in enumerate(trace.ranks):
        rows = np.flatnonzero((stretches.rank == position) & (stretches.event != MISSING))
        distinct, which = np.unique(rank.events.name[stretches.event[rows]], return_inverse=True)
        known = [numbers.setdefault(rank.names[name], len(numbers)) for name in distinct.tolist()]
        found[rows] = np.array(known, np.int64)[which]
    return found, list(numbers)


def in_figures(seconds: float) -> str:
    """A duration in three figures or more: ``"9.57 ms"``, ``"929 ms"``, ``"1.23 s"``, ``"4321 s"``."""
    value, unit = (seconds, "s") if seconds >= 0.9995 else (1e3 * seconds, "ms")
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"


def gpu_seconds_during(
    kind: Kind, stretches: TorchStretches, graphs: Sequence[TorchGraph], positions: Sequence[int], offset: Sequence[int]
) -> float:
    """For how much of a path's time of a kind the GPUs of the rank that it was on had work that ran.

    Parameters
    ----------
    kind
        Of stretches.
    stretches
        The path, on the clock of the job.
    graphs, positions
        Of each rank that the path runs over, its graph and its position in the trace.
    offset
        By position, nanoseconds from the rank's clock to the job's.

    Returns
    -------
    float
        Seconds. Kernels that exchange data with other ranks are work too.
    """
    found = 0
    for graph, position in zip(graphs, positions, strict=True):
        mine = (stretches.rank == position) & (stretches.kind == KINDS.index(kind))
        events, shift = graph.trace.events, offset[position]
        works = np.isin(events.category, GPU_WORK)
        busy = union(events.start[works] + shift, events.stop[works] + shift)
        found += length(intersection(Intervals(stretches.start[mine], stretches.stop[mine]), busy))
    return found / 1e9
