"""Which columns of a trace point into which other part of it, and whether they do."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dask_efficiency.trace.run_trace import BLOCKED_BY, PHASES, STATES, Outcome, TraceTables, WorkerChange
from dask_efficiency.trace.tables import MISSING

#: By table and column: the field of the trace that its numbers are positions in.
POINTS_INTO: dict[str, dict[str, str]] = {
    "tasks": {"prefix": "prefixes", "span": "spans", "graph": "graphs"},
    "graphs": {"client": "clients"},
    "releases": {"client": "clients", "task": "tasks"},
    "transitions": {
        "task": "tasks",
        "start": "STATES",
        "finish": "STATES",
        "worker": "workers",
        "stimulus": "stimuli",
    },
    "stimuli": {"kind": "stimulus_kinds", "graph": "graphs"},
    "runs": {"task": "tasks", "worker": "workers", "outcome": "Outcome", "after": "tasks"},
    "transfers": {"task": "tasks", "sender": "workers", "receiver": "workers"},
    "worker_events": {"worker": "workers", "change": "WorkerChange"},
    "blocked": {"worker": "workers", "cause": "BLOCKED_BY"},
    "phases": {"client": "clients", "phase": "PHASES"},
    "series": {"worker": "workers"},
}

_FIXED = {
    "STATES": len(STATES),
    "Outcome": len(Outcome),
    "WorkerChange": len(WorkerChange),
    "PHASES": len(PHASES),
    "BLOCKED_BY": len(BLOCKED_BY),
}


def check_positions(trace: TraceTables) -> None:
    """See that all parts of a trace fit each other; a position may be ``MISSING``.

    Raises
    ------
    ValueError
        Naming the column, the row and its value.
    """
    if len(trace.keys) != len(trace.tasks):
        raise ValueError(f"there are {len(trace.keys)} keys; expected one for each of {len(trace.tasks)} tasks")
    _check_dependencies(trace)
    for table, columns in POINTS_INTO.items():
        for column, target in columns.items():
            size = _FIXED[target] if target in _FIXED else len(getattr(trace, target))
            _check_range(f"{table}.{column}", getattr(getattr(trace, table), column), size, target)
    if trace.constraints and not 0 <= min(trace.constraints) <= max(trace.constraints) < len(trace.tasks):
        raise ValueError(f"constraints name a task that is none of {len(trace.tasks)}")


def _check_dependencies(trace: TraceTables) -> None:
    starts, edges, tasks = trace.dependency_starts, trace.dependencies, len(trace.tasks)
    if len(starts) != tasks + 1:
        raise ValueError(f"dependency_starts has {len(starts)} rows; expected {tasks + 1}, one more than tasks")
    if starts[0] != 0 or starts[-1] != len(edges) or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"dependency_starts does not rise from 0 to the {len(edges)} dependencies")
    _check_range("dependencies", edges, tasks, "tasks", lowest=0)


def _check_range(name: str, column: NDArray[Any], size: int, target: str, lowest: int = MISSING) -> None:
    if not len(column) or (column.min() >= lowest and column.max() < size):
        return
    row = int(((column < lowest) | (column >= size)).argmax())
    raise ValueError(f"{name} is {column[row]} in row {row}; expected {lowest} to {size - 1}, as of {target}")
