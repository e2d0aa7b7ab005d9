"""Chapter: a stretch of a recording that can be dropped as a whole, as columns that grow."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from struct import pack
from typing import Any

import numpy as np

from dask_efficiency.runs.trace.batch import Batch
from dask_efficiency.runs.trace.schema import (
    Blocked,
    Graphs,
    Releases,
    Series,
    Stimuli,
    Tasks,
    Transitions,
    WorkerEvents,
)

#: What is known of a task when it is first met.
TASKS = tuple(name for name, column in Tasks.schema().items() if column.points_into is not None)

_Dtypes = Mapping[str, type[np.generic]]

#: The tables that grow, by the names under which they travel. What is no table of a trace is joined to one later.
_TABLES: dict[str, _Dtypes] = {
    "edges": {"task": np.int32, "dependency": np.int32},
    # A code is a state before and a state after; extra is the number of a run that begins, or the size of a result.
    "log": {
        **{name: Transitions.dtypes()[name] for name in ("at", "task", "worker")},
        "code": np.int8,
        "extra": np.int64,
    },
    # Row of the log with which a stimulus begins, and the worker that made it; MISSING is the scheduler.
    "stimuli": {**Stimuli.dtypes(), "row": np.int32, "worker": np.int32},
    # Row of the log, and when Dask says that the thread began and stopped, in seconds since the epoch.
    "computed": {"row": np.int32, "start": np.float64, "stop": np.float64},
    # Numbers of the runs that compute a lost result again.
    "recomputed": {"run_id": np.int64},
    # Stimuli that removed a worker.
    "removals": {"stimulus": np.int64},
    "graphs": Graphs.dtypes(),
    "releases": Releases.dtypes(),
    "worker_events": WorkerEvents.dtypes(),
    "blocked": Blocked.dtypes(),
    "series": Series.dtypes(),
}


def _packed(typecode: str, numbers: tuple[float, ...]) -> bytes:
    return pack(f"{len(numbers)}{typecode}", *numbers)


class Growing:
    """Columns of equal length to which rows are appended."""

    __slots__ = ("_first", "columns")

    def __init__(self, dtypes: _Dtypes) -> None:
        self.columns: dict[str, array[Any]] = {name: array(np.dtype(dtype).char) for name, dtype in dtypes.items()}
        self._first = next(iter(self.columns.values()))

    def append(self, *values: float) -> None:
        """Append a row, in the order of the columns."""
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def extend(self, *values: Iterable[float]) -> None:
        """Append rows, column by column; all of them or, where a value is none of its column's, none."""
        # A third of the instructions that it takes to extend arrays by numbers.
        added = [
            _packed(column.typecode, (*numbers,)) for column, numbers in zip(self.columns.values(), values, strict=True)
        ]
        for column, numbers in zip(self.columns.values(), added, strict=True):
            column.frombytes(numbers)

    def __len__(self) -> int:
        return len(self._first)


class Chapter:
    """A stretch of a recording that can be dropped as a whole; its tasks are numbered from 0.

    Parameters
    ----------
    first_graph, first_stimulus
        Number of its first graph and stimulus in the whole recording.
    """

    def __init__(self, first_graph: int = 0, first_stimulus: int = 0) -> None:
        self.first_graph = first_graph
        self.first_stimulus = first_stimulus
        #: Of its tasks, in the order of their numbers.
        self.keys: list[Any] = []
        self.constraints: dict[int, dict[str, Any]] = {}
        self.wanted: set[int] = set()
        #: By task; rows change when more is known.
        self.tasks = Growing({name: Tasks.dtypes()[name] for name in TASKS})
        #: By task, three numbers each: the user's, the graph's, and the order in the graph.
        self.priority = array("q")
        self.tables = {name: Growing(dtypes) for name, dtypes in _TABLES.items()}
        #: Those that grow with every task.
        self.log, self.edges = self.tables["log"], self.tables["edges"]
        self.stimuli, self.computed = self.tables["stimuli"], self.tables["computed"]
        #: A worker's number, its senders' numbers, and its batch.
        self.batches: list[tuple[int, list[int], Batch]] = []
        self.batch_rows = 0
        self.profile_bytes = 0

    def counts(self) -> dict[str, int]:
        """Rows by table."""
        return {
            "tasks": len(self.keys),
            "transitions": len(self.log),
            "runs": sum(len(batch.runs) for _, _, batch in self.batches),
            "transfers": sum(len(batch.transfers) for _, _, batch in self.batches),
            "series": len(self.tables["series"]),
            "profiles": sum(len(batch.profiles) for _, _, batch in self.batches),
        }
