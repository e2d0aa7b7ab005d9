"""Columns of the numbers that Kineto says in an event's ``args``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int8
from dask_efficiency.torch_traces.kineto.categories import (
    ALL,
    ARE_CALLS,
    ASKED_FOR,
    COLLECTIVES,
    COPIES,
    GPU_EVENTS,
    ON_CPU,
    SYNCS,
)
from dask_efficiency.torch_traces.kineto.numbers import integers
from dask_efficiency.torch_traces.kineto.trace import Events

#: By categories whose events have them: Kineto's names of a column; where there are two, the first one that is there.
_ARGUMENTS: tuple[tuple[Bool, Mapping[str, Sequence[str]]], ...] = (
    (ALL, {"external": ("External id", "external id")}),
    (ASKED_FOR | ARE_CALLS, {"correlation": ("correlation",)}),
    (ARE_CALLS, {"cbid": ("cbid",)}),
    (
        ON_CPU,
        {
            "sequence": ("Sequence number",),
            "forward_thread": ("Fwd thread id",),
            "record_function": ("Record function id",),
        },
    ),
    (GPU_EVENTS, {"device": ("device",), "stream": ("stream",)}),
    (COPIES, {"nbytes": ("bytes",)}),
    (SYNCS, {"recorded_by": ("wait_on_cuda_event_record_corr_id",), "recorded_stream": ("wait_on_stream",)}),
    (
        COLLECTIVES,
        {
            "group_size": ("Group size",),
            "elements_in": ("In msg nelems",),
            "elements_out": ("Out msg nelems",),
        },
    ),
)


def said_in(
    arguments: Sequence[Mapping[str, Any]], present: Collection[str], category: Int8
) -> dict[str, NDArray[Any]]:
    """The columns of these events' arguments.

    Parameters
    ----------
    arguments
        ``args`` of each event.
    present
        All names in them.
    category
        Of each event.

    Returns
    -------
    dict of arrays, shape (events,)
        MISSING where an event does not say it, or is of a category of which it would mean something else.
    """
    columns = {}
    for categories, wanted in _ARGUMENTS:
        rows = said = None
        for name, keys in wanted.items():
            dtype = Events.dtypes()[name]
            columns[name] = column = np.full(len(arguments), MISSING, dtype)
            for key in keys:
                if key not in present:
                    continue
                if rows is None or said is None:
                    rows = np.flatnonzero(categories[category])
                    said = [arguments[row] for row in rows.tolist()]
                found = integers([each.get(key, MISSING) for each in said], dtype)
                column[rows] = np.where(column[rows] == MISSING, found, column[rows])
    return columns
