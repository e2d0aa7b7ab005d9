"""A critical path as plain data, for programs."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from dask_efficiency.runs.path.path import GROUPS, CriticalPath


def to_dict(path: CriticalPath) -> dict[str, Any]:
    """The path's figures, ready for JSON: seconds, and shares in [0, 1]; None where a figure is not finite."""
    return {
        "name": path.trace.name,
        "headline": path.headline,
        "findings": [one.to_dict() for one in path.findings],
        "makespan_seconds": path.makespan_seconds,
        "floor_seconds": path.floor_seconds,
        "slot_bound_seconds": path.slot_bound_seconds if math.isfinite(path.slot_bound_seconds) else None,
        "slots": path.slots,
        "unattributed": path.unattributed,
        **{f"seconds_by_{by}": path.seconds(by) for by in GROUPS},
        "notes": list(path.trace.notes),
        "dropped": dict(path.trace.dropped),
    }


def improvements(path: CriticalPath) -> list[dict[str, Any]]:
    """Where 10 % would help most, ready for JSON; the error is None of a single replay."""
    rows = [asdict(speedup) for speedup in path.improvements()]
    for row in rows:
        row["error_seconds"] = row["error_seconds"] if math.isfinite(row["error_seconds"]) else None
    return rows
