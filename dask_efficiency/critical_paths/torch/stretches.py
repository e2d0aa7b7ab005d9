"""Stretches: the time of a window, each part named once, in time order and without gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dask_efficiency.trace.tables import Bool, Column, Int8, Int32, Int64, Table


@dataclass(frozen=True, slots=True)
class Stretches(Table):
    """A row for each stretch of a tiling walk; each begins where the one before it stops."""

    #: Position in :data:`~dask_efficiency.critical_paths.kinds.KINDS`.
    kind: Int8
    #: Nanoseconds on the clock of the job (of one rank: its own).
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: Position in :attr:`~dask_efficiency.kineto.trace.KinetoTrace.ranks`.
    rank: Int32
    #: Row of the event whose time it is; missing where it is no event's.
    event: Int32
    #: Whether the walk came here by an edge that was inferred.
    inferred: Bool
