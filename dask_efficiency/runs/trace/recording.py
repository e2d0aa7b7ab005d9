"""Chapters of growing columns, which a recorder fills, and the Recording that is packed from them for the client."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import pack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Texts
from dask_efficiency.runs.trace import schema
from dask_efficiency.runs.trace.batch import BLOCKED, RUN, TRANSFER, WorkerBatch

#: Columns that are known of a task when it is first seen.
TASKS = tuple(name for name, column in schema.Tasks.schema().items() if column.points_into is not None)
_Dtypes = Mapping[str, type[np.generic]]
#: A worker's number, its senders' numbers, and its batch.
_Batch = tuple[int, list[int], WorkerBatch]

#: Growing tables, by the names under which they travel. Those that are no table of a trace are joined to one later.
_TABLES: dict[str, _Dtypes] = {
    "edges": {"task": np.int32, "dependency": np.int32},
    # A code is a state before and a state after; extra is the number of a run that begins, or the size of a result.
    "log": {
        **{name: schema.Transitions.dtypes()[name] for name in ("at", "task", "worker")},
        "code": np.int8,
        "extra": np.int64,
    },
    # Row of the log with which a stimulus begins, and the worker that made it; MISSING is the scheduler.
    "stimuli": {**schema.Stimuli.dtypes(), "row": np.int32, "worker": np.int32},
    # Row of the log, and when Dask says that the thread began and stopped, in seconds since the epoch.
    "computed": {"row": np.int32, "start": np.float64, "stop": np.float64},
    # Numbers of the runs that compute a lost result again.
    "recomputed": {"run_id": np.int64},
    # Stimuli that removed a worker.
    "removals": {"stimulus": np.int64},
    "graphs": schema.Graphs.dtypes(),
    "releases": schema.Releases.dtypes(),
    "worker_events": schema.WorkerEvents.dtypes(),
    "blocked": schema.Blocked.dtypes(),
    "series": schema.Series.dtypes(),
}


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
        """Append rows, column by column; all of them or, if a value does not fit its column, none."""
        # Takes a third of the instructions of extending arrays by numbers.
        rows = zip(self.columns.values(), map(tuple, values), strict=True)
        added = [pack(f"{len(numbers)}{column.typecode}", *numbers) for column, numbers in rows]
        for column, numbers in zip(self.columns.values(), added, strict=True):
            column.frombytes(numbers)

    def __len__(self) -> int:
        return len(self._first)


class Chapter:
    """Part of a recording that can be dropped as a whole; its tasks are numbered from 0."""

    def __init__(self, first_graph: int = 0, first_stimulus: int = 0) -> None:
        self.first_graph = first_graph
        self.first_stimulus = first_stimulus
        #: Keys of its tasks, in the order of their numbers.
        self.keys: list[Any] = []
        self.constraints: dict[int, dict[str, Any]] = {}
        self.wanted: set[int] = set()
        #: By task; rows change when their facts are read.
        self.tasks = Growing({name: schema.Tasks.dtypes()[name] for name in TASKS})
        #: By task, three numbers each: the user's, the graph's, and the order in the graph.
        self.priority = array("q")
        self.tables = {name: Growing(dtypes) for name, dtypes in _TABLES.items()}
        #: Those that grow with every task.
        self.log, self.edges = self.tables["log"], self.tables["edges"]
        self.stimuli, self.computed = self.tables["stimuli"], self.tables["computed"]
        self.batches: list[_Batch] = []
        self.batch_rows = 0
        self.profile_bytes = 0

    def counts(self) -> dict[str, int]:
        """Count rows by table."""
        return {
            "tasks": len(self.keys),
            "transitions": len(self.log),
            "runs": sum(len(batch.runs) for _, _, batch in self.batches),
            "transfers": sum(len(batch.transfers) for _, _, batch in self.batches),
            "series": len(self.tables["series"]),
            "profiles": sum(len(batch.profiles) for _, _, batch in self.batches),
        }


#: Rows that are copied at once: meanwhile no other thread runs, and the event loop waits; about 0.1 ms.
_PIECE = 50_000
#: Columns that refer to tasks of a chapter.
_TASK_COLUMNS = ("edges.task", "edges.dependency", "log.task", "releases.task")


@dataclass(frozen=True, slots=True)
class Recording:
    """Recording at one instant, as it travels to the client; instants by the monotonic clock of the process."""

    columns: dict[str, NDArray[Any]]
    keys: Texts
    facts: dict[str, Any]


class _FrozenChapter:
    """Chapter at one instant: copies of what changes, and the number of rows of columns that only grow."""

    def __init__(self, chapter: Chapter) -> None:
        self.tasks = {name: np.array(column) for name, column in chapter.tasks.columns.items()}
        self.priority = np.array(chapter.priority).reshape(-1, 3)
        self.growing = {
            f"{table}.{name}": (column, len(column))
            for table, growing in chapter.tables.items()
            for name, column in growing.columns.items()
        }
        self.keys, self.batches = list(chapter.keys), list(chapter.batches)
        self.wanted, self.constraints = set(chapter.wanted), dict(chapter.constraints)
        self.first_graph, self.first_stimulus = chapter.first_graph, chapter.first_stimulus


class Frozen:
    """Chapters of a recorder as they were at one instant; :meth:`pack` may run on another thread."""

    def __init__(self, chapters: list[Chapter], facts: dict[str, Any]) -> None:
        self.facts = facts
        self._parts = list(map(_FrozenChapter, chapters))

    def pack(self) -> Recording:
        """Join the chapters, with tasks numbered again and keys as texts."""
        ids: dict[Any, int] = {}
        for part in self._parts:
            for key in part.keys:
                ids.setdefault(key, len(ids))
        tasks: dict[str, NDArray[Any]] = {f"tasks.{name}": np.full(len(ids), MISSING, np.int32) for name in TASKS}
        tasks |= {"tasks.priority": np.zeros((len(ids), 3), np.int64), "tasks.wanted": np.zeros(len(ids), np.bool_)}
        constraints: dict[str, Any] = {}
        pieces: dict[str, list[NDArray[Any]]] = {}
        first, log_rows = self._parts[0], 0
        for part in self._parts:
            number = np.fromiter((ids[key] for key in part.keys), np.int32, len(part.keys))
            _add_tasks(tasks, part, number, first.first_graph)
            constraints.update({str(number[task]): value for task, value in part.constraints.items()})
            columns = _columns(part, number, first, log_rows) | _batches(part.batches, ids)
            log_rows += len(columns["log.at"])
            for name, column in columns.items():
                pieces.setdefault(name, []).append(column)
        joined = {name: np.concatenate(piece) for name, piece in pieces.items()}
        keys = Texts.of(str(key) for key in ids)
        return Recording({**tasks, **joined}, keys, {**self.facts, "constraints": constraints})


def _copy_first(column: array[Any], rows: int) -> NDArray[Any]:
    """Copy a column's first rows while it goes on growing, which an array that numpy views could not."""
    copied = np.empty(rows, column.typecode)
    for start in range(0, rows, _PIECE):
        stop = min(start + _PIECE, rows)
        copied[start:stop] = column[start:stop]
    return copied


def _add_tasks(tasks: dict[str, NDArray[Any]], part: _FrozenChapter, number: NDArray[Any], first_graph: int) -> None:
    """Fill in a chapter's facts of its tasks; those that only an earlier chapter has stay."""
    unknown = part.tasks["prefix"] == MISSING
    for name in TASKS:
        known, column = part.tasks[name], tasks[f"tasks.{name}"]
        if name == "graph":  # the first that brought the task
            known = _counted_from(known, first_graph)
            column[number] = np.where(column[number] == MISSING, known, column[number])
        else:
            column[number] = np.where(known == MISSING, column[number], known)
    priority = tasks["tasks.priority"]
    priority[number] = np.where(unknown[:, None], priority[number], part.priority)
    tasks["tasks.wanted"][number[list(part.wanted)]] = True


def _columns(
    part: _FrozenChapter, number: NDArray[Any], first: _FrozenChapter, log_rows: int
) -> dict[str, NDArray[Any]]:
    """Copy a chapter's columns, with tasks, graphs, stimuli and rows of the log counted from the first chapter's."""
    columns = {name: _copy_first(*growing) for name, growing in part.growing.items()}
    for name in _TASK_COLUMNS:
        columns[name] = number[columns[name]]
    first_here = part.first_stimulus - first.first_stimulus
    columns["log.stimulus"] = _stimuli(columns.pop("stimuli.row"), len(columns["log.at"]), first_here)
    columns["stimuli.graph"] = _counted_from(columns["stimuli.graph"], first.first_graph)
    columns["removals.stimulus"] = _counted_from(columns["removals.stimulus"], first.first_stimulus)
    columns["computed.row"] = columns["computed.row"] + log_rows
    return columns


def _counted_from(numbers: NDArray[Any], first: int) -> NDArray[Any]:
    """Count numbers from the first that is kept; MISSING below it."""
    return np.where(numbers < first, MISSING, numbers - first).astype(np.int32)


def _stimuli(begins: NDArray[Any], rows: int, first: int) -> NDArray[Any]:
    """By row: number of the stimulus; MISSING before the first one."""
    last = np.searchsorted(begins, np.arange(rows), side="right") - 1
    return np.where(last < 0, MISSING, last + first).astype(np.int32)


def _batches(batches: list[_Batch], ids: Mapping[Any, int]) -> dict[str, NDArray[Any]]:
    """Join the workers' rows, with the worker of each; and their profiles, whose bytes follow each other."""
    columns: dict[str, NDArray[Any]] = {}
    for table, attribute, names in (
        ("runs", "runs", RUN),
        ("transfers", "transfers", TRANSFER),
        ("blocks", "blocked", BLOCKED),
    ):
        rows = [getattr(batch, attribute) for _, _, batch in batches]
        joined = np.concatenate(rows) if rows else np.empty((0, len(names)), np.int64)
        columns.update({f"{table}.{name}": joined[:, i] for i, name in enumerate(names)})
        workers = np.array([worker for worker, _, _ in batches], np.int32)
        columns[f"{table}.worker"] = np.repeat(workers, [len(part) for part in rows])
    # A batch numbers its senders itself; the last one is none.
    senders = [np.array([*of, MISSING])[batch.transfers[:, TRANSFER.index("sender")]] for _, of, batch in batches]
    columns["transfers.sender"] = np.concatenate([*senders, np.empty(0)]).astype(np.int32)
    columns["transfers.task"] = np.array(
        [ids.get(key, MISSING) for _, _, batch in batches for key in batch.keys], np.int32
    )
    profiles = [(profile, worker) for worker, _, batch in batches for profile in batch.profiles]
    for name in ("run", "thread", "start", "stop", "started"):
        columns[f"profiles.{name}"] = np.array([getattr(profile, name) for profile, _ in profiles], np.int64)
    columns["profiles.worker"] = np.array([worker for _, worker in profiles], np.int32)
    columns["profiles.nbytes"] = np.array([len(profile.content) for profile, _ in profiles], np.int64)
    columns["profiles.content"] = np.frombuffer(b"".join(profile.content for profile, _ in profiles), np.uint8)
    return columns
