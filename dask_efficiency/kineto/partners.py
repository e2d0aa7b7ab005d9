"""Which call asked for what was done on a GPU."""

from __future__ import annotations

import numpy as np

from dask_efficiency.kineto.categories import ARE_CALLS, ASKED_FOR
from dask_efficiency.kineto.lookup import first_with
from dask_efficiency.trace.tables import MISSING, Int8, Int32, Int64


def calls_of(category: Int8, correlation: Int64) -> Int32:
    """Row of the call with an event's correlation, for work on a GPU and synchronisations; of several the first one.

    A correlation of 0 is none: it stands where CUPTI knows of no call.

    Returns
    -------
    array, shape (events,)
        MISSING for everything else, and where the call was not recorded.
    """
    found = np.full(len(category), MISSING, np.int32)
    calls = np.flatnonzero(ARE_CALLS[category] & (correlation > 0))
    asked = np.flatnonzero(ASKED_FOR[category] & (correlation > 0))
    place = first_with(correlation[calls], correlation[asked])
    found[asked[place != MISSING]] = calls[place[place != MISSING]]
    return found
