"""Stretches: the time of a window, each part named once, in time order and without gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from dask_efficiency.accounts.tables import Bool, Column, Int8, Int32, Int64, Table
from dask_efficiency.runs.path.kinds import KINDS, Kind


@dataclass(frozen=True, slots=True, repr=False)
class Stretches(Table):
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
