"""A torch trace's critical path as plain data, for programs."""

from __future__ import annotations

from typing import Any

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.torch_traces.path.lateness import Cause
from dask_efficiency.torch_traces.path.path import TorchCriticalPath
from dask_efficiency.torch_traces.path.spent import GROUPS


def to_dict(path: TorchCriticalPath) -> dict[str, Any]:
    """The path's figures, ready for JSON: seconds, and shares in [0, 1]."""
    question = path.question
    return {
        "headline": path.headline,
        "findings": [one.to_dict() for one in path.findings],
        "files": [rank.path for rank in path.trace.ranks],
        "annotation": question.annotation,
        "instance": question.instance,
        "ranks": [graph.trace.rank for graph in path.graphs],
        "rank": path.rank,
        "window_seconds": path.window_seconds,
        "longest_path_seconds": path.longest_path_seconds,
        "summary": path.shares,
        **{f"seconds_by_{by}": path.seconds(by) for by in GROUPS},
        "inferred_seconds": path.inferred_seconds,
        "inferred_edges": path.inferred_edges,
        "data_floor_seconds": None if path.graph.trace.execution is None else path.data_flow().floor_seconds,
        "changes": list(path.changes),
        "stragglers": _stragglers(path),
        "waits": _waits(path),
    }


def _waits(path: TorchCriticalPath) -> list[dict[str, Any]]:
    waits = path.job.waits
    columns = (waits.rank, waits.collectives, waits.last, waits.suffered_seconds, waits.caused_seconds)
    names = ("rank", "collectives", "last", "suffered_seconds", "caused_seconds")
    return [dict(zip(names, row, strict=True)) for row in zip(*(c.tolist() for c in columns), strict=True)]


def _stragglers(path: TorchCriticalPath) -> list[dict[str, Any]]:
    found = path.job.stragglers
    rows = zip(found.step.tolist(), found.rank.tolist(), found.cause.tolist(), found.caused.tolist(), strict=True)
    return [
        {
            "step": step if step != MISSING else None,
            "rank": path.job.numbers[position],
            "cause": Cause(cause).label,
            "caused_seconds": caused / 1e9,
        }
        for step, position, cause, caused in rows
    ]
