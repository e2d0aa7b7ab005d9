"""Copies: what was copied between hosts and GPUs, and filled, by direction, with bytes and bytes a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Column, ColumnTable, Float64, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.summaries.groups import MOST_BYTES, Groups, in_common, joined, summed


@dataclass(frozen=True, slots=True, repr=False)
class CopySums(ColumnTable):
    """A row for each direction, in the trace's words, such as ``Memcpy HtoD (Pinned -> Device)``."""

    #: Position in :attr:`Copies.names`.
    name: Int32
    count: Int64
    total: Annotated[Int64, Column(unit="nanoseconds")]
    longest: Annotated[Int64, Column(unit="nanoseconds")]
    #: Of those whose bytes were recorded: their number, bytes and time.
    sized: Int64
    nbytes: Annotated[Int64, Column(unit="bytes")]
    sized_time: Annotated[Int64, Column(unit="nanoseconds")]

    @property
    def bytes_per_second(self) -> Float64:
        """Bytes by time of the copies whose bytes are known; NaN where none are."""
        known = self.sized_time > 0
        return np.where(known, self.nbytes / np.maximum(self.sized_time, 1) * 1e9, np.nan)


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies and fills of one rank or of all, those with most time first."""

    names: tuple[str, ...]
    sums: CopySums


def copies_of(trace: RankTrace) -> Copies:
    """Sum up the copies and fills of a rank's GPUs."""
    events = trace.events
    rows = np.flatnonzero(np.isin(events.category, (Category.COPY, Category.FILL)))
    lasts, nbytes = events.stop[rows] - events.start[rows], events.nbytes[rows]
    sized = (nbytes != MISSING) & (nbytes <= MOST_BYTES)
    groups = Groups.of(events.name[rows])
    names = events.name[rows][groups.first]
    sums = CopySums(
        np.arange(len(names), dtype=np.int32),
        groups.sizes,
        groups.sums(lasts),
        groups.largest(lasts),
        groups.sums(sized.astype(np.int64)),
        groups.sums(np.where(sized, nbytes, 0)),
        groups.sums(np.where(sized, lasts, 0)),
    )
    return _in_order(Copies(tuple(trace.names[name] for name in names.tolist()), sums))


def merged_copies(parts: Sequence[Copies]) -> Copies:
    """Sums over several ranks."""
    names, places = in_common([part.names for part in parts])
    several = [replace(part.sums, name=place[part.sums.name]) for part, place in zip(parts, places, strict=True)]
    return _in_order(Copies(names, summed(joined(several), "name")))


def _in_order(copies: Copies) -> Copies:
    return replace(copies, sums=copies.sums.take(np.argsort(-copies.sums.total, kind="stable")))
