"""Messages that carry a recording from the scheduler to a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask_efficiency.accounts.tables import Texts
from dask_efficiency.plugin.plain import carried
from dask_efficiency.runs.trace.recording import Recording


def pack(recording: Recording) -> dict[str, Any]:
    """Make the message: columns are sent without a copy, facts are plain data."""
    columns = {**recording.columns, "keys.block": recording.keys.block, "keys.offsets": recording.keys.offsets}
    return {"columns": {name: carried(column) for name, column in columns.items()}, "facts": recording.facts}


def unpack(payload: Mapping[str, Any]) -> Recording:
    """Read the message of :func:`pack`, on the client."""
    columns = dict(payload["columns"])
    keys = Texts(columns.pop("keys.block"), columns.pop("keys.offsets"))
    return Recording(columns, keys, payload["facts"])
