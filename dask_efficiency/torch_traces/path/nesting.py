"""Slices of one thread or stream, put on tracks on which each is inside another or beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import Int64

#: Nanoseconds by which times may be off where a file has whole microseconds: that much of an overlap is cut off.
ROUNDING_NS = 1000


class Nested(NamedTuple):
    """By slice, in the order in which they were given."""

    #: From 0; slices that overlap and are not inside one another have different ones.
    track: Int64
    start: Int64
    stop: Int64


def nested(start: Int64, stop: Int64) -> Nested:
    """A track for each slice, as few as a walk from left to right needs.

    Parameters
    ----------
    start, stop
        In any order; none stops before its start.

    Returns
    -------
    Nested
        Overlaps of up to :data:`ROUNDING_NS` are cut off, all else is as it was.
    """
    order = np.lexsort((np.arange(len(start)), -stop, start)).tolist()
    starts, stops = start.tolist(), stop.tolist()
    tracks = [0] * len(starts)
    # by track, the slices that are open, the innermost last
    open_slices: list[list[int]] = []
    for row in order:
        fitting = (track for track, stack in enumerate(open_slices) if _fits(row, stack, starts, stops))
        track = next(fitting, len(open_slices))
        if track == len(open_slices):
            open_slices.append([])
        open_slices[track].append(row)
        tracks[row] = track
    return Nested(np.array(tracks, np.int64), start, np.array(stops, np.int64))


def _fits(row: int, stack: list[int], starts: list[int], stops: list[int]) -> bool:
    """Whether a slice is beside or inside those that are open, once overlaps by rounding are cut off."""
    at, until = starts[row], stops[row]
    while stack:
        inner = stack[-1]
        if stops[inner] <= at:
            stack.pop()
        elif until <= stops[inner]:
            return True
        elif until - stops[inner] <= ROUNDING_NS:
            stops[row] = stops[inner]
            return True
        elif stops[inner] - at <= ROUNDING_NS and starts[inner] < at:
            stops[inner] = at
            stack.pop()
        else:
            return False
    return True
