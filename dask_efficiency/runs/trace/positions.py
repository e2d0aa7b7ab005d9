"""Which columns of a trace point into which other part of it, and whether they do; whether all numbers can be true."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.run_trace import TABLES, RunTrace

#: A year and some days, in nanoseconds: of longer ones the sums would not fit in 64 bits.
MAX_NS = 1 << 55

#: Bytes, and other numbers, at most.
MAX_NUMBER = 1 << 62

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


def check_numbers(trace: RunTrace) -> None:
    """See that sums and differences of a trace's numbers are such numbers, too.

    Instants lie at most :data:`MAX_NS` before or after the run, which takes no longer itself, as does no duration.
    Sizes and rates are at most :data:`MAX_NUMBER`. All of them may be ``MISSING``.

    Raises
    ------
    ValueError
        Naming the column, the row and its value.
    """
    if not -MAX_NUMBER <= trace.start <= trace.stop <= min(trace.start + MAX_NS, MAX_NUMBER):
        raise ValueError(f"the run is from {trace.start} to {trace.stop}; expected nanoseconds, of {MAX_NS} at most")
    for table, kind in TABLES.items():
        for name, said in kind.schema().items():
            column = getattr(getattr(trace, table), name)
            if column.dtype != np.int64 or said.points_into is not None:
                continue
            lowest, highest = (0, MAX_NS) if said.unit == "ns" else (0, MAX_NUMBER)
            if said.clock is not None:
                lowest, highest = trace.start - MAX_NS, trace.stop + MAX_NS
            elif not said.unit:
                lowest = -MAX_NUMBER
            wrong = (column != MISSING) & ((column < lowest) | (column > highest))
            if wrong.any():
                row = int(wrong.argmax())
                raise ValueError(f"{table}.{name} is {column[row]} in row {row}; expected {lowest} to {highest}")


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
