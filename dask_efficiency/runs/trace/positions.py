"""Which columns of a trace point into which other part of it, and whether they do."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.run_trace import TABLES, RunTrace

#: By table and column: what its numbers are positions in, a field of the trace or an enumeration.
POINTS_INTO = {
    table: {name: column.points_into for name, column in kind.schema().items() if column.points_into is not None}
    for table, kind in TABLES.items()
}


def check_positions(trace: RunTrace) -> None:
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
            size = len(getattr(trace, target) if isinstance(target, str) else target)
            name = target if isinstance(target, str | tuple) else target.__name__
            _check_range(f"{table}.{column}", getattr(getattr(trace, table), column), size, name)
    for profile in trace.profiles:
        if not 0 <= profile.run < len(trace.runs):
            raise ValueError(f"a profile is of run {profile.run}; expected 0 to {len(trace.runs) - 1}, as of runs")
    if trace.constraints and not 0 <= min(trace.constraints) <= max(trace.constraints) < len(trace.tasks):
        raise ValueError(f"constraints name a task that is none of {len(trace.tasks)}")


def _check_dependencies(trace: RunTrace) -> None:
    starts, edges, tasks = trace.dependency_starts, trace.dependencies, len(trace.tasks)
    if len(starts) != tasks + 1:
        raise ValueError(f"dependency_starts has {len(starts)} rows; expected {tasks + 1}, one more than tasks")
    if starts[0] != 0 or starts[-1] != len(edges) or (starts[1:] < starts[:-1]).any():
        raise ValueError(f"dependency_starts does not rise from 0 to the {len(edges)} dependencies")
    _check_range("dependencies", edges, tasks, "tasks", lowest=0)


def _check_range(name: str, column: NDArray[Any], size: int, target: object, lowest: int = MISSING) -> None:
    if not len(column) or (column.min() >= lowest and column.max() < size):
        return
    row = int(((column < lowest) | (column >= size)).argmax())
    raise ValueError(f"{name} is {column[row]} in row {row}; expected {lowest} to {size - 1}, as of {target}")
