"""Sets of instants as sorted, disjoint intervals of nanoseconds, their algebra, and the ranks of numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]


class IntervalArrays(NamedTuple):
    """Half-open intervals. The intervals of a set are sorted, disjoint and not empty; others may be in any order."""

    start: Int64
    stop: Int64

    @property
    def lengths(self) -> Int64:
        """Length of each interval."""
        return self.stop - self.start


NOTHING = IntervalArrays(np.empty(0, np.int64), np.empty(0, np.int64))


def length(intervals: IntervalArrays) -> int:
    """Total length of a set."""
    return int(intervals.stop.sum() - intervals.start.sum())


def union(start: Int64, stop: Int64) -> IntervalArrays:
    """Set of the instants in any piece; pieces that touch become one, empty ones vanish."""
    some = stop > start
    if not some.all():
        start, stop = start[some], stop[some]
    if not len(start):
        return NOTHING
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, stop = start[order], stop[order]
    reached = np.maximum.accumulate(stop)
    opens = np.empty(len(start), np.bool_)
    opens[0] = True
    np.greater(start[1:], reached[:-1], out=opens[1:])
    closes = np.append(opens[1:], True)
    return IntervalArrays(start[opens], reached[closes])


def overlaps(pieces: IntervalArrays, by: IntervalArrays) -> tuple[IntervalArrays, NDArray[np.intp]]:
    """Parts of pieces, which may overlap, that lie in a set, and the index of the piece of each part.

    None of the parts is empty. They are a set if the pieces are.
    """
    first = np.searchsorted(by.stop, pieces.start, side="right")
    count = np.searchsorted(by.start, pieces.stop, side="left") - first
    count[(count < 0) | (pieces.stop <= pieces.start)] = 0
    which = np.repeat(np.arange(len(count)), count)
    begun = np.cumsum(count) - count
    other = np.arange(len(which)) + (first - begun)[which]
    start = np.maximum(pieces.start[which], by.start[other])
    return IntervalArrays(start, np.minimum(pieces.stop[which], by.stop[other])), which


def intersection(a: IntervalArrays, b: IntervalArrays) -> IntervalArrays:
    """Set of the instants in both sets."""
    return overlaps(a, b)[0] if len(a.start) and len(b.start) else NOTHING


def difference(a: IntervalArrays, b: IntervalArrays) -> IntervalArrays:
    """Set of the instants in the first set and not in the second."""
    if not len(a.start) or not len(b.start):
        return a
    gaps = IntervalArrays(
        np.concatenate([[min(a.start[0], b.start[0])], b.stop]),
        np.concatenate([b.start, [max(a.stop[-1], b.stop[-1])]]),
    )
    some = gaps.stop > gaps.start
    return intersection(a, IntervalArrays(gaps.start[some], gaps.stop[some]))


def time_before(intervals: IntervalArrays, at: Int64) -> Int64:
    """Nanoseconds of a set before each instant."""
    before = np.searchsorted(intervals.start, at, side="right")
    total = np.concatenate([[0], np.cumsum(intervals.lengths)])[before]
    ends = np.concatenate([[np.iinfo(np.int64).min], intervals.stop])[before]
    begun: Int64 = np.where(ends > at, ends - at, 0)
    return total - begun


#: Longest table of all numbers between the smallest and the greatest: 32 MB. Beyond, the numbers are sorted.
_MAX_TABLE = 4_000_000


def ranked(numbers: NDArray[np.integer]) -> tuple[Int64, NDArray[np.intp]]:
    """Distinct numbers in order, and the index of each number among them: ``np.unique`` at a tenth of its cost.

    Tasks of a batch have numbers close to each other, so a table with an entry for each number is short.
    """
    if not len(numbers):
        return np.empty(0, np.int64), np.empty(0, np.intp)
    smallest = int(numbers.min())
    if int(numbers.max()) - smallest >= _MAX_TABLE:
        distinct, indices = np.unique(numbers, return_inverse=True)
        return distinct.astype(np.int64), indices
    above = numbers.astype(np.int64) - smallest
    present = np.bincount(above) > 0
    return np.flatnonzero(present) + smallest, (np.cumsum(present) - 1)[above]
