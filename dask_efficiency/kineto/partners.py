"""Which call asked for what was done on a GPU."""

from __future__ import annotations

import numpy as np

from dask_efficiency.kineto.categories import ARE_CALLS, ASKED_FOR
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
    if not calls.size or not asked.size:
        return found
    calls = calls[np.argsort(correlation[calls], kind="stable")]
    numbers = correlation[calls]
    place = np.minimum(np.searchsorted(numbers, correlation[asked]), len(numbers) - 1)
    found[asked] = np.where(numbers[place] == correlation[asked], calls[place], MISSING)
    return found
