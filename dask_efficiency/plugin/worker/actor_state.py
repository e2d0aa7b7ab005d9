"""Sizes of the state of a worker's actors, which Dask counts nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from dask.sizeof import sizeof
from dask.utils import key_split

from dask_efficiency.accounts.intake import whole_number
from dask_efficiency.accounts.worker.log import prefix_of

#: Actors, and attributes of each, that are measured: some microseconds each. A guess that bounds the time.
MAX_MEASURED = 100


def state_by_class(actors: Mapping[Any, Any]) -> dict[str, int]:
    """Bytes of the attributes of actors by their prefix, as Dask estimates sizes; those it cannot tell count as 0."""
    found: dict[str, int] = {}
    for key, actor in islice(actors.items(), MAX_MEASURED):
        prefix = prefix_of(key_split(key))
        attributes = list(getattr(actor, "__dict__", {}).values())[:MAX_MEASURED]
        found[prefix] = found.get(prefix, 0) + sum(map(_size_of, attributes))
    return found


def _size_of(value: object) -> int:
    try:
        return whole_number(sizeof(value))
    except Exception:  # a size of the user's own, or an object that a method changes meanwhile
        return 0
