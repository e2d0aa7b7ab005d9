"""Sequences: puts the collectives of two ranks beside each other, of which profiles recorded different parts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int8, Int32, Int64

#: The place of a collective without a counterpart.
NOWHERE = int(np.iinfo(np.int64).min)

#: Profiles of ranks begin and end at most so many collectives apart.
MAX_SHIFT = 1_000
#: Collectives that are compared for each shift, and of each rank where all are compared with all.
_MAX_COMPARED = 512
_MAX_CROSSED = 2_000

#: What it costs that one has no counterpart, where a wrong counterpart costs 1. A collective that is cut off at a
#: border is common; one that is of another kind than its counterpart, or ends a usual interval off, is not.
_UNMATCHED = 0.25
#: What it costs that clocks differ by the usual interval between two collectives. Where ranks do the same all the time,
#: nothing else says which turn is which.
_CLOCKS = 1.0
_MAX_CLOCKS = 2.0

#: Kernels of NCCL end together: ranks whose kernels do so only up to this share of the usual interval, on average, took
#: part in different collectives. Those of eight V100s were 0.001 off, those of two groups that share a stream 0.7.
_MAX_OFF = 0.1
#: Ends coincide that differ by no more than this share of the usual interval, or so many nanoseconds ...
_COINCIDENT = 0.02
_MIN_COINCIDENT = 20_000
#: ... and a few do so by chance.
_MIN_COINCIDENCES = 3


class CollectiveOrder(NamedTuple):
    """The collectives of one rank in one group, in order."""

    kind: Int8
    #: Missing where it is not known, or may differ from rank to rank.
    elements: Int64
    #: Of the profiler; missing outside of all.
    step: Int32
    stop: Int64

    def take(self, rows: slice | NDArray[np.intp]) -> CollectiveOrder:
        """Those at the given positions."""
        return CollectiveOrder(self.kind[rows], self.elements[rows], self.step[rows], self.stop[rows])

    @property
    def interval(self) -> int:
        """The usual time between two of them, nanoseconds, at least 1."""
        return max(1, int(np.median(np.diff(np.sort(self.stop))))) if len(self.stop) > 1 else 1


def places(reference: CollectiveOrder, other: CollectiveOrder, *, one_group: bool) -> Int64:
    """For each collective of a rank, its place in the order of the reference; beyond both ends, too.

    Parameters
    ----------
    reference, other
        Two ranks.
    one_group
        Whether they are taken to be of one group, and therefore in one order. Otherwise only those that end together
        have places, if the order as a whole does not fit.

    Returns
    -------
    array
        ``NOWHERE`` for those that cannot be any of the reference's.
    """
    nowhere = np.full(len(other.stop), NOWHERE)
    found = _shift(reference, other)
    if found is not None and (one_group or found[1] <= _MAX_OFF):
        place = np.arange(len(nowhere)) + found[0]
        beside = np.flatnonzero((place >= 0) & (place < len(reference.stop)))
        fits = np.ones(len(place), np.bool_)
        fits[beside] = _agree(other.take(beside), reference.take(place[beside]))
        return np.where(fits, place, nowhere)
    if not one_group:
        ours, theirs = _coincidences(reference, other)
        nowhere[theirs] = ours
    return nowhere


def _agree(one: CollectiveOrder, other: CollectiveOrder) -> Bool:
    """Whether collectives at the same positions can be the same, by all that is known of both."""
    same: Bool = one.kind == other.kind
    for mine, its in ((one.elements, other.elements), (one.step, other.step)):
        same &= (mine == its) | (mine == MISSING) | (its == MISSING)
    return same


def _shift(reference: CollectiveOrder, other: CollectiveOrder) -> tuple[int, float] | None:
    """At which position of the reference the other one begins, and how many intervals ends are off; None if nowhere.

    Of all shifts that leave at least half of the shorter one with a counterpart (one, if steps are known), that of
    least cost: the sum over pairs of how far their ends are from being equally far apart (in usual intervals, at most
    1, and 1 where they cannot be the same), some for each without a counterpart, and some for clocks that would be far
    apart.
    """
    shorter = min(len(reference.stop), len(other.stop))
    steps_are_known = (reference.step != MISSING).all() and (other.step != MISSING).all()
    least = 1 if steps_are_known else max(1, (shorter + 1) // 2)
    lowest, highest = max(least - len(other.stop), -MAX_SHIFT), min(len(reference.stop) - least, MAX_SHIFT)
    best = None
    # Of equally good ones the smallest wins.
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
    """What pairs cost at a shift, and how many intervals their ends are off on average."""
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
    """Positions in both of those that end together, by the difference of clocks that lets most of them do so."""
    nothing = np.empty(0, np.int64), np.empty(0, np.int64)
    ours, theirs = np.arange(min(len(reference.stop), _MAX_CROSSED)), np.arange(min(len(other.stop), _MAX_CROSSED))
    one, two = (positions.ravel() for positions in np.meshgrid(ours, theirs, indexing="ij"))
    possible = _agree(reference.take(one), other.take(two))
    one, two = one[possible], two[possible]
    apart = reference.stop[one] - other.stop[two]
    order = np.argsort(apart, kind="stable")
    width = max(_MIN_COINCIDENT, int(reference.interval * _COINCIDENT))
    count = np.searchsorted(apart[order], apart[order] + width, side="right") - np.arange(len(order))
    if not len(count) or count.max() < _MIN_COINCIDENCES:
        return nothing
    # Of equally many, those whose clocks are least apart.
    most = np.flatnonzero(count == count.max())
    first = most[np.argmin(np.abs(apart[order][most]))]
    chosen = order[first : first + count.max()]
    _, once = np.unique(one[chosen], return_index=True)
    chosen = chosen[once]
    _, once = np.unique(two[chosen], return_index=True)
    return one[chosen[once]], two[chosen[once]]
