"""Recorder: what the scheduler sees of a run, appended to columns, in bounded memory."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.trace.batch import BLOCKED, RUN, TRANSFER, Batch
from dask_efficiency.trace.run_trace import STATES, Series
from dask_efficiency.trace.tables import MISSING, Texts

#: A transition is one number in a column: ``start * len(STATES) + finish``.
CODES = {start: {finish: i * len(STATES) + j for j, finish in enumerate(STATES)} for i, start in enumerate(STATES)}

#: Stimuli that are made, and dated, by the worker whose message they come with.
_OF_WORKERS = frozenset({"task-finished", "task-erred", "execute-unknown-error", "reschedule"})

#: Names of one sort that are told apart; later ones share one.
MAX_NAMES = 10_000

#: Longer names are cut.
MAX_NAME_LENGTH = 200

#: Transitions for each task that a chapter has room for.
TRANSITIONS_A_TASK = 8

#: Columns of a worker's heartbeat, after its instant and worker.
SERIES = tuple(name for name in Series.dtypes() if name not in ("at", "worker"))


#: What the scheduler knows of a task when it is first met: its prefix, the name of its span, its priority (the
#: user's, the graph's, the order in the graph), the keys of its dependencies, and its constraints, as in
#: :attr:`~dask_efficiency.trace.run_trace.TraceTables.constraints`; None where it has none.
TaskFacts = tuple[str, str, tuple[int, int, int], Sequence[Any], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Recording:
    """What a recorder held at one instant, as it travels to the client.

    Parameters
    ----------
    columns
        Arrays by name, such as ``log.at``; instants in nanoseconds, by the monotonic clock of the process
        that noted them.
    keys
        A task's key as text, by task.
    facts
        The rest, in texts, numbers, lists and dictionaries.
    """

    columns: dict[str, NDArray[Any]]
    keys: Texts
    facts: dict[str, Any]


class Names:
    """Numbers for names; what is beyond :data:`MAX_NAMES` is one name, the last."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        #: The number of a name that has one.
        self.known = self._numbers.get

    def number(self, name: str) -> int:
        """The number of a name, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers.setdefault(name[:MAX_NAME_LENGTH], len(self._numbers))
            if number >= MAX_NAMES:
                del self._numbers[name[:MAX_NAME_LENGTH]]
                number = self._numbers.setdefault("(other)", len(self._numbers))
        return number

    def all(self) -> list[str]:
        """The names in the order of their numbers."""
        return list(self._numbers)


def _no_floats() -> array[float]:
    return array("d")


@dataclass(slots=True)
class Chapter:
    """A stretch of a recording that can be dropped as a whole; its tasks are numbered from 0."""

    #: Number of its first graph and stimulus in the whole recording.
    first_graph: int = 0
    first_stimulus: int = 0
    ids: dict[Any, int] = field(default_factory=dict)
    #: Tasks of which only somebody's need of them is known, so far.
    unread: set[int] = field(default_factory=set)
    constraints: dict[int, dict[str, Any]] = field(default_factory=dict)
    wanted: set[int] = field(default_factory=set)
    prefix: array[int] = field(default_factory=partial(array, "i"))
    span: array[int] = field(default_factory=partial(array, "i"))
    graph: array[int] = field(default_factory=partial(array, "i"))
    priority: array[int] = field(default_factory=partial(array, "q"))
    edge_task: array[int] = field(default_factory=partial(array, "i"))
    edge_dependency: array[int] = field(default_factory=partial(array, "i"))
    log_at: array[int] = field(default_factory=partial(array, "q"))
    log_task: array[int] = field(default_factory=partial(array, "i"))
    log_code: array[int] = field(default_factory=partial(array, "b"))
    log_worker: array[int] = field(default_factory=partial(array, "i"))
    #: Number of the run that begins, or size of the result that is there.
    log_extra: array[int] = field(default_factory=partial(array, "q"))
    #: Numbers of the runs that compute a lost result again.
    recomputed: array[int] = field(default_factory=partial(array, "q"))
    #: Row of the log, and when upstream says that the thread began and stopped, in seconds since the epoch.
    computed_row: array[int] = field(default_factory=partial(array, "i"))
    computed_start: array[float] = field(default_factory=_no_floats)
    computed_stop: array[float] = field(default_factory=_no_floats)
    #: Row of the log with which each stimulus begins.
    stimulus_row: array[int] = field(default_factory=partial(array, "i"))
    stimulus_kind: array[int] = field(default_factory=partial(array, "h"))
    #: Nanoseconds since the epoch, by the clock of the worker that made it; MISSING: the scheduler's.
    stimulus_at: array[int] = field(default_factory=partial(array, "q"))
    stimulus_worker: array[int] = field(default_factory=partial(array, "i"))
    stimulus_graph: array[int] = field(default_factory=partial(array, "i"))
    graphs: list[tuple[int, int, int]] = field(default_factory=list)
    release_at: array[int] = field(default_factory=partial(array, "q"))
    release_client: array[int] = field(default_factory=partial(array, "i"))
    release_task: array[int] = field(default_factory=partial(array, "i"))
    worker_events: list[tuple[int, int, int]] = field(default_factory=list)
    #: Stimuli that removed a worker.
    removals: list[int] = field(default_factory=list)
    blocked: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    series: list[tuple[float, ...]] = field(default_factory=list)
    #: A worker's number, its senders' numbers, and its batch.
    batches: list[tuple[int, list[int], Batch]] = field(default_factory=list)
    batch_rows: int = 0

    def log(self) -> tuple[Any, ...]:
        """What a transition needs of the chapter, looked up once: it is called for every one of every task."""
        return (
            self.ids.get,
            self.unread,
            self.log_at.append,
            self.log_task.append,
            self.log_code.append,
            self.log_worker.append,
            self.log_extra.append,
        )

    def counts(self) -> dict[str, int]:
        """Rows by table."""
        return {
            "tasks": len(self.ids),
            "transitions": len(self.log_at),
            "runs": self.batch_rows,
            "transfers": sum(len(batch.transfers) for _, _, batch in self.batches),
            "series": len(self.series),
        }


class Recorder:
    """The scheduler's recorder, without a scheduler.

    It keeps two chapters. When the newer one is full, the older one is dropped and counted.

    Parameters
    ----------
    read
        Gives what the scheduler knows of a task, by key; None where it knows none.
    max_tasks
        Tasks kept at most; at least half of them are the latest.
    """

    def __init__(self, read: Callable[[Any], TaskFacts | None], *, max_tasks: int) -> None:
        self._read = read
        self.limit(max_tasks)
        self._older: Chapter | None = None
        self._newer = Chapter()
        self._log = self._newer.log()
        self._stimulus_id = ""
        self._stimulus = MISSING
        #: The graph that is being taken in, and by which stimulus.
        self._taking_in: tuple[str, int] = "", MISSING
        self.prefixes, self.spans, self.clients, self.kinds = Names(), Names(), Names(), Names()
        self._known_prefix, self._known_span, self._known_kind = self.prefixes.known, self.spans.known, self.kinds.known
        self.dropped: Counter[str] = Counter()

    def limit(self, max_tasks: int) -> None:
        """Keep so many tasks from now on."""
        self._half = max(1, max_tasks // 2)
        self._full_log = TRANSITIONS_A_TASK * self._half

    # -- tasks -------------------------------------------------------------------------------

    def _meet(self, key: Any, graph: int = MISSING) -> int:
        """A task that is not in this chapter yet, or was only needed by others, with all that it needs."""
        chapter = self._newer
        ids = chapter.ids
        task = ids.get(key)
        facts = self._read(key)
        if facts is None:
            return self._number(key) if task is None else task
        prefix, span, priority, dependencies, constraints = facts
        prefix_number, span_number = self._known_prefix(prefix), self._known_span(span)
        if prefix_number is None:
            prefix_number = self.prefixes.number(prefix)
        if span_number is None:
            span_number = self.spans.number(span)
        if task is None:
            task = ids[key] = len(ids)
            chapter.prefix.append(prefix_number)
            chapter.span.append(span_number)
            chapter.graph.append(graph)
            chapter.priority.extend(priority)
        else:
            chapter.unread.discard(task)
            chapter.prefix[task] = prefix_number
            chapter.span[task] = span_number
            chapter.graph[task] = graph
            chapter.priority[3 * task : 3 * task + 3] = array("q", priority)
        if constraints:
            chapter.constraints[task] = dict(constraints)
        for dependency in dependencies:
            needed = ids.get(dependency)
            if needed is None:
                needed = self._number(dependency)
                chapter.unread.add(needed)
            chapter.edge_task.append(task)
            chapter.edge_dependency.append(needed)
        return task

    def _number(self, key: Any) -> int:
        """A task of which nothing is known yet."""
        chapter = self._newer
        task = chapter.ids[key] = len(chapter.ids)
        chapter.prefix.append(MISSING)
        chapter.span.append(MISSING)
        chapter.graph.append(MISSING)
        chapter.priority.extend((0, 0, 0))
        return task

    def graph(
        self, keys: Iterable[Any], wanted: Collection[Any], *, client: str, stimulus_id: str, received: int, at: int
    ) -> None:
        """A graph was taken in; its transitions follow, by the same stimulus.

        Parameters
        ----------
        keys, wanted
            Its tasks, and those of them whose results the client asked for.
        client, stimulus_id
            Whose it is, and what its transitions will be caused by.
        received
            When the scheduler began to take it in.
        at
            Now.
        """
        self._turn_over()
        chapter = self._newer
        number = chapter.first_graph + len(chapter.graphs)
        chapter.graphs.append((self.clients.number(client), received, at))
        self._taking_in = stimulus_id, number
        for key in keys:
            task = chapter.ids.get(key)
            if task is None or task in chapter.unread:
                if len(chapter.ids) >= self._half:
                    self._turn_over()
                    chapter = self._newer
                task = self._meet(key, number)
            elif chapter.graph[task] == MISSING:
                chapter.graph[task] = number
            if key in wanted:
                chapter.wanted.add(task)

    # -- what happens ------------------------------------------------------------------------

    def transition(self, at: int, key: Any, start: str, finish: str, stimulus_id: str, worker: int, extra: int) -> None:
        """A task changed state.

        Parameters
        ----------
        at, key, start, finish
            When, which, and how.
        stimulus_id
            What caused it.
        worker
            Number of the worker that it is on now, or whose message this is.
        extra
            Number of the run that begins, or size of the result that is there; else MISSING.
        """
        if stimulus_id != self._stimulus_id:
            self._stimulate(stimulus_id, worker)
        number, unread, add_at, add_task, add_code, add_worker, add_extra = self._log
        task = number(key)
        if task is None:
            if finish == "forgotten":  # it was there before
                return
            task = self._meet(key)
        elif unread and task in unread and finish != "forgotten":
            self._meet(key)
        add_at(at)
        add_task(task)
        add_code(CODES[start][finish])
        add_worker(worker)
        add_extra(extra)

    def computed(self, start: float, stop: float) -> None:
        """What upstream says of the run that the next transition ends, in seconds since the epoch."""
        chapter = self._newer
        chapter.computed_row.append(len(chapter.log_at))
        chapter.computed_start.append(start)
        chapter.computed_stop.append(stop)

    def processing_again(self, at: int, key: Any, worker: int, run_id: int, *, stimulus_id: str | None) -> None:
        """A task was given to another worker; or, without a stimulus, was processing when the recording began."""
        if stimulus_id is not None:
            self.transition(at, key, "processing", "processing", stimulus_id, worker, run_id)
            return
        self.transition(at, key, "processing", "processing", self._stimulus_id, worker, run_id)

    def recomputed(self, run_id: int) -> None:
        """A run that begins computes a result again that was lost."""
        self._newer.recomputed.append(run_id)

    def _stimulate(self, stimulus_id: str, worker: int) -> None:
        """Another stimulus begins."""
        if len(self._newer.log_at) >= self._full_log:
            self._turn_over()
        chapter = self._newer
        self._stimulus_id = stimulus_id
        self._stimulus = chapter.first_stimulus + len(chapter.stimulus_at)
        chapter.stimulus_row.append(len(chapter.log_at))
        kind, _, when = stimulus_id.rpartition("-")
        number = self._known_kind(kind)
        if number is None:
            number = self.kinds.number(kind)
        try:
            made = int(float(when) * 1e9)
        except (OverflowError, ValueError):
            made = 0
        chapter.stimulus_kind.append(number)
        chapter.stimulus_at.append(made if made > 10**17 else MISSING)  # steal-7 has no time in it
        chapter.stimulus_worker.append(worker if kind in _OF_WORKERS else MISSING)
        chapter.stimulus_graph.append(self._taking_in[1] if stimulus_id == self._taking_in[0] else MISSING)

    def released(self, at: int, client: str, keys: Sequence[Any]) -> None:
        """A client wants these no more."""
        chapter = self._newer
        number = self.clients.number(client)
        for key in keys:
            task = chapter.ids.get(key)
            if task is not None:
                chapter.release_at.append(at)
                chapter.release_client.append(number)
                chapter.release_task.append(task)

    def worker_changed(self, at: int, worker: int, change: int, *, stimulus_id: str | None = None) -> None:
        """A worker came, went, paused or resumed; the stimulus is what removed it."""
        self._newer.worker_events.append((at, worker, change))
        if stimulus_id is not None and stimulus_id == self._stimulus_id:
            self._newer.removals.append(self._stimulus)

    def blocked(self, start: int, stop: int, moving_ns: int, cause: int = MISSING) -> None:
        """The scheduler's event loop did not turn; for so long it moved data itself."""
        self._newer.blocked.append((MISSING, start, stop, moving_ns, cause))

    def heartbeat(self, at: int, worker: int, values: Sequence[float]) -> None:
        """How a worker is: the columns :data:`SERIES`."""
        self._turn_over()
        self._newer.series.append((at, worker, *values))

    def batch(self, worker: int, senders: list[int], batch: Batch) -> None:
        """A worker's rows came."""
        self._turn_over()
        self._newer.batches.append((worker, senders, batch))
        self._newer.batch_rows += len(batch.runs) + len(batch.transfers)

    def _turn_over(self) -> None:
        """Begin a new chapter if this one is full, and drop the oldest."""
        full, half = self._newer, self._half
        if (
            len(full.ids) < half
            and len(full.log_at) < self._full_log
            and full.batch_rows < self._full_log
            and len(full.series) < self._full_log
        ):
            return
        if self._older is not None:
            counts = self._older.counts()
            counts["tasks"] -= sum(key in full.ids for key in self._older.ids)  # these live on
            self.dropped.update(counts)
        self._older = full
        self._newer = Chapter(
            first_graph=full.first_graph + len(full.graphs),
            first_stimulus=full.first_stimulus + len(full.stimulus_at),
        )
        self._log = self._newer.log()
        self._stimulus_id = ""

    # -- what there is -----------------------------------------------------------------------

    def freeze(self) -> Frozen:
        """All that is there now; quick, as it is made on the event loop: what only grows is copied later."""
        chapters = [chapter for chapter in (self._older, self._newer) if chapter is not None]
        facts = {
            "prefixes": self.prefixes.all(),
            "spans": self.spans.all(),
            "clients": self.clients.all(),
            "kinds": self.kinds.all(),
            "dropped": dict(self.dropped),
        }
        return Frozen([_copy(chapter) for chapter in chapters], facts)


#: Columns of a chapter by the name under which they travel: those whose rows change, and those that only grow.
_CHANGING = {
    "tasks.prefix": "prefix",
    "tasks.span": "span",
    "tasks.graph": "graph",
    "tasks.priority": "priority",
}
_GROWING = {
    "edges.task": "edge_task",
    "edges.dependency": "edge_dependency",
    "log.at": "log_at",
    "log.task": "log_task",
    "log.code": "log_code",
    "log.worker": "log_worker",
    "releases.at": "release_at",
    "releases.client": "release_client",
    "releases.task": "release_task",
    "stimuli.row": "stimulus_row",
    "log.extra": "log_extra",
    "recomputed.run_id": "recomputed",
    "computed.row": "computed_row",
    "computed.start": "computed_start",
    "computed.stop": "computed_stop",
    "stimuli.kind": "stimulus_kind",
    "stimuli.at": "stimulus_at",
    "stimuli.worker": "stimulus_worker",
    "stimuli.graph": "stimulus_graph",
}

_ROWS = {
    "graphs": ("client", "received", "taken_in"),
    "worker_events": ("at", "worker", "change"),
    "blocked": ("worker", "start", "stop", "moving_ns", "cause"),
}


@dataclass(slots=True)
class _Part:
    columns: dict[str, NDArray[Any]]
    #: Columns that go on growing, and how many rows of them count.
    growing: dict[str, tuple[array[Any], int]]
    #: In the order of their numbers.
    keys: list[Any]
    wanted: set[int]
    constraints: dict[int, dict[str, Any]]
    removals: list[int]
    batches: list[tuple[int, list[int], Batch]]
    rows: dict[str, list[tuple[int, ...]]]
    series: list[tuple[float, ...]]
    first_graph: int
    first_stimulus: int


def _copy(chapter: Chapter) -> _Part:
    columns = {name: np.array(getattr(chapter, attribute)) for name, attribute in _CHANGING.items()}
    columns["tasks.priority"] = columns["tasks.priority"].reshape(-1, 3)
    growing = {name: getattr(chapter, attribute) for name, attribute in _GROWING.items()}
    return _Part(
        columns,
        {name: (column, len(column)) for name, column in growing.items()},
        list(chapter.ids),
        set(chapter.wanted),
        dict(chapter.constraints),
        list(chapter.removals),
        list(chapter.batches),
        {name: list(getattr(chapter, name)) for name in _ROWS},
        list(chapter.series),
        chapter.first_graph,
        chapter.first_stimulus,
    )


#: Rows that are copied at once: meanwhile no other thread runs, and the event loop waits.
_PIECE = 50_000


def _first(column: array[Any], rows: int) -> NDArray[Any]:
    """A copy of a column's first rows while it goes on growing; an array that numpy looks at could not."""
    copied = np.empty(rows, column.typecode)
    for start in range(0, rows, _PIECE):
        stop = min(start + _PIECE, rows)
        copied[start:stop] = column[start:stop]
    return copied


@dataclass(slots=True)
class Frozen:
    """What a recorder held; :meth:`pack` may run on another thread."""

    parts: list[_Part]
    facts: dict[str, Any]

    def pack(self) -> Recording:
        """Chapters as one, tasks numbered anew, keys as texts."""
        ids: dict[Any, int] = {}
        renumbered = []
        for part in self.parts:
            for key in part.keys:
                ids.setdefault(key, len(ids))
            renumbered.append(np.fromiter((ids[key] for key in part.keys), np.int32, len(part.keys)))
        pieces: dict[str, list[NDArray[Any]]] = {}
        constraints: dict[str, Any] = {}
        first_graph, first_stimulus = self.parts[0].first_graph, self.parts[0].first_stimulus
        log_rows = 0
        tasks = _no_tasks(len(ids))
        for part, number in zip(self.parts, renumbered, strict=True):
            columns = part.columns | {name: _first(*growing) for name, growing in part.growing.items()}
            for name in ("prefix", "span", "graph"):
                known = columns.pop(f"tasks.{name}")
                known = _from(known, first_graph) if name == "graph" else known
                column = tasks[f"tasks.{name}"]
                if name == "graph":  # that brought it first
                    column[number] = np.where(column[number] == MISSING, known, column[number])
                else:
                    column[number] = np.where(known == MISSING, column[number], known)
            priority = columns.pop("tasks.priority")
            tasks["tasks.priority"][number] = np.where(
                (part.columns["tasks.prefix"] == MISSING)[:, None], tasks["tasks.priority"][number], priority
            )
            tasks["tasks.wanted"][number[list(part.wanted)]] = True
            constraints.update({str(number[task]): value for task, value in part.constraints.items()})
            for name in ("edges.task", "edges.dependency", "log.task", "releases.task"):
                columns[name] = number[columns[name]]
            number_of_first = part.first_stimulus - first_stimulus
            columns["log.stimulus"] = _stimuli(columns.pop("stimuli.row"), len(columns["log.at"]), number_of_first)
            columns["stimuli.graph"] = _from(columns["stimuli.graph"], first_graph)
            columns["computed.row"] = columns["computed.row"] + log_rows
            log_rows += len(columns["log.at"])
            columns["removals.stimulus"] = _from(np.array(part.removals, np.int64), first_stimulus)
            for table, names in _ROWS.items():
                rows = np.array(part.rows[table], np.int64).reshape(-1, len(names))
                columns.update({f"{table}.{name}": rows[:, i] for i, name in enumerate(names)})
            series = np.array(part.series, np.float64).reshape(-1, 2 + len(SERIES))
            columns.update({f"series.{name}": series[:, i + 2] for i, name in enumerate(SERIES)})
            columns["series.at"] = np.array([row[0] for row in part.series], np.int64)
            columns["series.worker"] = series[:, 1].astype(np.int32)
            columns.update(_batches(part.batches, ids))
            for name, column in columns.items():
                pieces.setdefault(name, []).append(column)
        joined = {name: np.concatenate(piece) for name, piece in pieces.items()}
        keys = Texts.of(str(key) for key in ids)
        return Recording({**tasks, **joined}, keys, {**self.facts, "constraints": constraints})


def _no_tasks(count: int) -> dict[str, NDArray[Any]]:
    tasks: dict[str, NDArray[Any]] = {
        f"tasks.{name}": np.full(count, MISSING, np.int32) for name in ("prefix", "span", "graph")
    }
    tasks["tasks.priority"] = np.zeros((count, 3), np.int64)
    tasks["tasks.wanted"] = np.zeros(count, np.bool_)
    return tasks


def _from(numbers: NDArray[Any], first: int) -> NDArray[Any]:
    """Numbers counted from the first that is still there; MISSING where it is not."""
    return np.where(numbers < first, MISSING, numbers - first).astype(np.int32)


def _stimuli(begins: NDArray[Any], rows: int, first: int) -> NDArray[Any]:
    """By row, the number of the stimulus; MISSING before the first one."""
    last = np.searchsorted(begins, np.arange(rows), side="right") - 1
    return np.where(last < 0, MISSING, last + first).astype(np.int32)


def _batches(batches: list[tuple[int, list[int], Batch]], ids: Mapping[Any, int]) -> dict[str, NDArray[Any]]:
    """The workers' rows, with the worker of each."""
    columns: dict[str, NDArray[Any]] = {}
    for table, names in (("runs", RUN), ("transfers", TRANSFER), ("blocks", BLOCKED)):
        attribute = "blocked" if table == "blocks" else table
        rows = [getattr(batch, attribute) for _, _, batch in batches]
        joined = np.concatenate(rows) if rows else np.empty((0, len(names)), np.int64)
        columns.update({f"{table}.{name}": joined[:, i] for i, name in enumerate(names)})
        columns[f"{table}.worker"] = np.repeat(
            np.array([worker for worker, _, _ in batches], np.int32), [len(part) for part in rows]
        )
    columns["transfers.sender"] = np.array(
        [
            senders[sender] if sender >= 0 else MISSING
            for _, senders, batch in batches
            for sender in batch.transfers[:, 0].tolist()
        ],
        np.int32,
    )
    columns["transfers.task"] = np.array(
        [ids.get(key, MISSING) for _, _, batch in batches for key in batch.keys], np.int32
    )
    return columns
