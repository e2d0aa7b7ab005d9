"""Sequences: aligns the collectives of two ranks, of which profiles recorded different parts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int8, Int32, Int64

#: Place of a collective without a counterpart.
NOWHERE = int(np.iinfo(np.int64).min)

#: Collectives compared for each shift; and of a shift either way, and of each rank where all are compared with all: all
#: limit the time to some tenths of a second.
_MAX_COMPARED, _MAX_CROSSED = 512, 2_000

#: Cost of a collective without a counterpart; a wrong counterpart costs 1. Collectives are often cut off at a profile's
#: border; a counterpart of another kind, or one that ends an interval off, is rare.
_UNMATCHED = 0.25
#: Cost of clocks that differ by one usual interval between two collectives, and its limit. It decides where ranks do
#: the same all the time.
_CLOCKS, _MAX_CLOCKS = 1.0, 2.0

#: Kernels of one NCCL collective end together. Ranks whose ends are further apart than this share of the usual
#: interval, on average, took part in different ones: 0.001 on eight V100s, 0.7 for two groups that share a stream.
_MAX_OFF = 0.1
#: Ends coincide within this share of the usual interval, or within this many nanoseconds: between the figures above.
_COINCIDENT, _MIN_COINCIDENT = 0.02, 20_000
#: Fewer coincidences happen by chance.
_MIN_COINCIDENCES = 3


class CollectiveOrder(NamedTuple):
    """Collectives of one rank in one group, in order."""

    kind: Int8
    #: Missing where unknown, or where ranks may differ.
    elements: Int64
    #: Of the profiler; missing outside of steps.
    step: Int32
    stop: Int64

    def take(self, rows: slice | NDArray[np.intp]) -> CollectiveOrder:
        """Collectives at some positions."""
        return CollectiveOrder(self.kind[rows], self.elements[rows], self.step[rows], self.stop[rows])

    @property
    def interval(self) -> int:
        """Median time between two of them, nanoseconds, at least 1."""
        return max(1, int(np.median(np.diff(np.sort(self.stop))))) if len(self.stop) > 1 else 1


def aligned_places(reference: CollectiveOrder, other: CollectiveOrder, *, one_group: bool) -> Int64:
    """Place of each collective of a rank in the order of the reference, also beyond both ends; or ``NOWHERE``.

    Unless both are in ``one_group``, and so in one order, only those that end together have places if the order does
    not fit.
    """
    nowhere = np.full(len(other.stop), NOWHERE)
    shift = _shift(reference, other)
    if shift is not None and (one_group or shift[1] <= _MAX_OFF):
        place = np.arange(len(nowhere)) + shift[0]
        overlapping = np.flatnonzero((place >= 0) & (place < len(reference.stop)))
        fits = np.ones(len(place), np.bool_)
        fits[overlapping] = _agree(other.take(overlapping), reference.take(place[overlapping]))
        return np.where(fits, place, nowhere)
    if not one_group:
        ours, theirs = _coincidences(reference, other)
        nowhere[theirs] = ours
    return nowhere


def _agree(reference: CollectiveOrder, other: CollectiveOrder) -> Bool:
    """Mask of collectives that can be the same at the same positions."""
    same: Bool = reference.kind == other.kind
    for mine, its in ((reference.elements, other.elements), (reference.step, other.step)):
        same &= (mine == its) | (mine == MISSING) | (its == MISSING)
    return same


def _shift(reference: CollectiveOrder, other: CollectiveOrder) -> tuple[int, float] | None:
    """Position in the reference at which the other one begins, and the mean error of ends in intervals; or None.

    Of all shifts that leave at least half of the shorter one with a counterpart (one, if steps are known), the one of
    least cost. The cost is the sum over pairs of the deviation of their distance from the median distance (in usual
    intervals, at most 1, and 1 where they cannot be the same), plus those of missing counterparts and of clocks.
    """
    shorter = min(len(reference.stop), len(other.stop))
    steps_are_known = (reference.step != MISSING).all() and (other.step != MISSING).all()
    least = 1 if steps_are_known else max(1, (shorter + 1) // 2)
    lowest, highest = max(least - len(other.stop), -_MAX_CROSSED), min(len(reference.stop) - least, _MAX_CROSSED)
    best = None
    # of equal costs the smallest shift wins
    for shift in sorted(range(lowest, highest + 1), key=abs):
        count = min(shift + len(other.stop), len(reference.stop)) - max(shift, 0)
        alone = _UNMATCHED * (len(reference.stop) + len(other.stop) - 2 * count)
        if best is not None and alone >= best[0]:
            continue
        pairs, off = _cost(reference, other, shift, count)
        if pairs < np.inf and (best is None or pairs + alone < best[0]):
            best = pairs + alone, shift, off
    return best[1:] if best is not None else None


def _cost(reference: CollectiveOrder, other: CollectiveOrder, shift: int, count: int) -> tuple[float, float]:
    """Cost of pairs at a shift, and the mean error of their ends in intervals."""
    first = max(shift, 0)
    last = first + min(count, _MAX_COMPARED)
    ours, theirs = reference.take(slice(first, last)), other.take(slice(first - shift, last - shift))
    same = _agree(ours, theirs)
    if 2 * same.sum() <= len(same):
        return np.inf, np.inf
    apart = (ours.stop - theirs.stop) / reference.interval
    middle = float(np.median(apart[same]))
    off = float(np.where(same, np.minimum(np.abs(apart - middle), 1.0), 1.0).mean())
    return off * count + min(abs(middle) * _CLOCKS, _MAX_CLOCKS), off


def _coincidences(reference: CollectiveOrder, other: CollectiveOrder) -> tuple[Int64, Int64]:
    """Positions in both of the collectives that end together, at the difference of clocks where most do."""
    nothing = np.empty(0, np.int64), np.empty(0, np.int64)
    ours, theirs = np.arange(min(len(reference.stop), _MAX_CROSSED)), np.arange(min(len(other.stop), _MAX_CROSSED))
    in_reference, in_other = (positions.ravel() for positions in np.meshgrid(ours, theirs, indexing="ij"))
    possible = _agree(reference.take(in_reference), other.take(in_other))
    in_reference, in_other = in_reference[possible], in_other[possible]
    apart = reference.stop[in_reference] - other.stop[in_other]
    order = np.argsort(apart, kind="stable")
    width = max(_MIN_COINCIDENT, int(reference.interval * _COINCIDENT))
    count = np.searchsorted(apart[order], apart[order] + width, side="right") - np.arange(len(order))
    if not len(count) or count.max() < _MIN_COINCIDENCES:
        return nothing
    # of equal counts the smallest difference of clocks wins
    most = np.flatnonzero(count == count.max())
    first = most[np.argmin(np.abs(apart[order][most]))]
    chosen = order[first : first + count.max()]
    _, once = np.unique(in_reference[chosen], return_index=True)
    chosen = chosen[once]
    _, once = np.unique(in_other[chosen], return_index=True)
    return in_reference[chosen[once]], in_other[chosen[once]]
