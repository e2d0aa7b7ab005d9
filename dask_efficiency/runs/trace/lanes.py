"""Lanes: intervals that may overlap, put beside each other so that none do."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64


def lanes(start: Int64, stop: Int64, wanted: Int64 | None = None) -> Int64:
    """A lane for each interval, so that no two in a lane overlap; touching is no overlap.

    Parameters
    ----------
    start, stop
        In any order; none stops before its start.
    wanted
        The lane that each should have if it is free then, not negative; ``MISSING`` has no wish.

    Returns
    -------
    array
        From 0. Those whose wish cannot be had come after the lanes that were wished for; among
        them as few lanes as will do.
    """
    wishes = np.full(len(start), MISSING) if wanted is None else wanted
    found = np.empty(len(start), np.int64)
    ends: dict[int, int] = {}
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    beyond = max(int(wishes.max(initial=MISSING)), MISSING) + 1
    starts, stops, wish = start.tolist(), stop.tolist(), wishes.tolist()
    for row in np.lexsort((stop, start)).tolist():
        at, lane = starts[row], wish[row]
        if lane < 0 or ends.get(lane, at) > at:
            while busy and busy[0][0] <= at:
                heappush(free, heappop(busy)[1])
            if free:
                lane = heappop(free)
            else:
                lane, beyond = beyond, beyond + 1
            heappush(busy, (stops[row], lane))
        else:
            ends[lane] = stops[row]
        found[row] = lane
    return found
