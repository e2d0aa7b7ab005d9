"""RunTrace from a Recording: the scheduler's transitions joined with the workers' rows, on one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Clock, ColumnTable, Int64, Texts
from dask_efficiency.plugin.wings import offered
from dask_efficiency.runs.trace import schema
from dask_efficiency.runs.trace.batch import RUN
from dask_efficiency.runs.trace.recording import Recording
from dask_efficiency.runs.trace.run_trace import POINTS_INTO, TABLES, RunTrace, TaskProfile, WorkerSpec, cost_note
from dask_efficiency.runs.trace.schema import PHASES, RUN_INSTANTS, SHUFFLED, STATES, RunOutcome, Runs, instants
from dask_efficiency.show.figures import format_number

_PROCESSING, _MEMORY, _ERRED = (STATES.index(state) for state in ("processing", "memory", "erred"))
#: Stimuli by which a worker reports that a task failed.
_FAILURES = ("task-erred", "execute-unknown-error")
#: Tables whose rows are as the scheduler recorded them.
_PLAIN = ("graphs", "releases", "worker_events", "series")
#: Fields of a worker that are as they travelled.
_OF_WORKER = ("name", "address", "host", "nthreads", "memory_limit", "resources")
#: End of the note on a recording that began later than its report.
_LATE = "after what it was asked for: an earlier one had failed"
#: Nanoseconds of disagreement between clocks from which a note warns: below, it is within the error of their readings.
_NOTABLE_NS = 1_000_000


def build(
    recording: Recording,
    *,
    name: str,
    start: int | None = None,
    phases: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    client: str = "",
) -> RunTrace:
    """Build the trace of a recording.

    What ended before ``start`` is left out; it and the client's ``phases`` are in nanoseconds by the scheduler's
    monotonic clock.
    """
    recorded, facts, columns = _Recorded(recording), recording.facts, recording.columns
    began, count = facts["started"], len(recording.keys)
    begin = began if start is None else max(start, began)
    runs, moved = _runs(recorded)
    clients = list(facts["clients"])
    starts, dependencies = _dependencies(columns, count)
    transfers, shuffled = _messages(recorded)
    profiles = _profiles(recorded, runs)
    of_no_run = {"profiles": len(columns["profiles.run"]) - len(profiles)}
    missing = sorted(facts.get("not_profiled", {}).items())
    not_profiled = [f"not profiled, though asked for: {number} runs, as {why}" for why, number in missing]
    after = 0.0 if start is None else (began - start) / 1e9
    late = [f"the recording began {format_number(after)} s {_LATE}"] if after > 0 else []
    plain: dict[str, Any] = {name: TABLES[name](**recorded.table(name, TABLES[name])) for name in _PLAIN}
    trace = RunTrace(
        name=name,
        start=begin + recorded.epoch,
        stop=facts["stopped"] + recorded.epoch,
        keys=recording.keys,
        tasks=_tasks(columns, count),
        dependency_starts=starts,
        dependencies=dependencies,
        runs=runs,
        prefixes=tuple(facts["prefixes"]),
        spans=tuple(facts["spans"]),
        workers=tuple(_worker(worker, recorded.epoch) for worker in facts["workers"]),
        stimulus_kinds=tuple(facts["kinds"]),
        transitions=_transitions(recorded),
        stimuli=schema.Stimuli(**recorded.table("stimuli", schema.Stimuli, columns["stimuli.worker"])),
        transfers=transfers,
        shuffled=shuffled,
        blocked=_blocked(recorded),
        phases=_phases(phases or {}, client, clients, recorded),
        clients=tuple(clients),
        constraints={
            int(task): {name: list(value) if isinstance(value, tuple) else value for name, value in constraints.items()}
            for task, constraints in facts["constraints"].items()  # lists arrive as tuples
        },
        config=facts["config"],
        versions=facts["versions"],
        dropped=dict(Counter(facts["dropped"]) + Counter(of_no_run)),
        notes=(*facts["notes"], *late, *moved, *cost_note(profiles), *not_profiled),
        profiles=profiles,
        **plain,
    )
    if begin > began:
        trace = since_start(trace)
    read = offered("gpu-times/torch") if trace.profiles else None
    return trace if read is None else read(trace)


class _Recorded:
    """Columns of a recording, and how to put instants of every process on the scheduler's clock since the epoch."""

    def __init__(self, recording: Recording) -> None:
        self.columns, self.facts = recording.columns, recording.facts
        #: Added to the scheduler's monotonic clock.
        self.epoch = int(self.facts["epoch"])
        workers = self.facts["workers"]
        #: By worker, added to its monotonic clock, and to its wall clock; the last is the scheduler.
        self._offsets = np.array([*(int(w["offset"]) + self.epoch for w in workers), self.epoch], np.int64)
        self._walls = self._offsets - np.array([*(int(w["wall"]) for w in workers), self.epoch], np.int64)

    def put(self, at: NDArray[Any], clock: Clock, worker: NDArray[Any] | None = None) -> Int64:
        """Convert instants of a clock; MISSING stays, and a worker that is MISSING is the scheduler."""
        if clock is Clock.SCHEDULER:
            return np.where(at == MISSING, MISSING, at + self.epoch)
        ahead = self._offsets if clock is Clock.WORKER else self._walls
        return np.where(at == MISSING, MISSING, at + ahead[worker])

    def table(self, group: str, kind: type[ColumnTable], worker: NDArray[Any] | None = None) -> dict[str, NDArray[Any]]:
        """Select the columns of a table that were recorded; ``worker`` is, by row, the one whose clock was read."""
        columns = {}
        for name, described in kind.schema().items():
            column = self.columns.get(f"{group}.{name}")
            if column is not None:
                columns[name] = column if described.clock is None else self.put(column, described.clock, worker)
        return columns


def _worker(worker: Mapping[str, Any], epoch: int) -> WorkerSpec:
    # Monotonic clocks begin anywhere; the difference of the wall clocks is what a reader can use.
    offset = int(worker["offset"]) + epoch - int(worker["wall"]) if worker["offset"] else 0
    known = {name: worker[name] for name in _OF_WORKER}
    cores, others = (float(worker.get(name, 0.0)) for name in ("cores", "others"))
    return WorkerSpec(**known, clock_offset=offset, clock_error=worker["error"], cores=cores, others=others)


def _tasks(columns: Mapping[str, NDArray[Any]], count: int) -> schema.Tasks:
    nbytes = np.full(count, MISSING, np.int64)
    in_memory = columns["log.code"] % len(STATES) == _MEMORY
    nbytes[columns["log.task"][in_memory]] = columns["log.extra"][in_memory]  # the last one stays
    known = {name: columns[f"tasks.{name}"] for name in ("prefix", "span", "graph", "wanted")}
    user, graph, order = columns["tasks.priority"].T
    return schema.Tasks(**known, nbytes=nbytes, priority_user=user, priority_graph=graph, priority_order=order)


def _dependencies(columns: Mapping[str, NDArray[Any]], count: int) -> tuple[Int64, NDArray[np.int32]]:
    edges = np.unique(columns["edges.task"].astype(np.int64) << 32 | columns["edges.dependency"].astype(np.int64))
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(edges >> 32, minlength=count), out=starts[1:])
    return starts, (edges & 0xFFFFFFFF).astype(np.int32)


def _transitions(recorded: _Recorded) -> schema.Transitions:
    start, finish = np.divmod(recorded.columns["log.code"], len(STATES))
    table = schema.Transitions(**recorded.table("log", schema.Transitions), start=start, finish=finish)
    return table.take(table.stimulus != MISSING)  # else: tasks that were processing when the recording began


def _messages(recorded: _Recorded) -> tuple[schema.Transfers, schema.Shuffled]:
    """Read results that workers got, and messages of shuffles that they sent, each by the clock of who reports it."""
    columns = recorded.columns
    reporter, other, arrived = (columns[f"transfers.{name}"] for name in ("worker", "sender", "arrived"))
    known, of_shuffle = columns["transfers.task"] != MISSING, arrived == SHUFFLED
    got = {"receiver": reporter, "arrived": arrived != 0}
    transfers = schema.Transfers(**recorded.table("transfers", schema.Transfers, reporter) | got)
    sent = {"sender": reporter, "receiver": other}
    shuffled = schema.Shuffled(**recorded.table("transfers", schema.Shuffled, reporter) | sent)
    rows, others = np.flatnonzero(known & ~of_shuffle), np.flatnonzero(known & of_shuffle)
    return (
        transfers.take(rows[np.argsort(transfers.stop[rows], kind="stable")]),
        shuffled.take(others[np.argsort(shuffled.stop[others], kind="stable")]),
    )


def _blocked(recorded: _Recorded) -> schema.Blocked:
    workers = {name: recorded.columns[f"{name}.worker"] for name in ("blocked", "blocks")}
    groups = [recorded.table(name, schema.Blocked, worker) for name, worker in workers.items()]
    table = {name: np.concatenate([group[name] for group in groups]) for name in schema.Blocked.dtypes()}
    return schema.Blocked(**table).take(np.argsort(table["start"], kind="stable"))


def _phases(
    phases: Mapping[str, Sequence[tuple[int, int]]], client: str, clients: list[str], recorded: _Recorded
) -> schema.Phases:
    rows = sorted((start, stop, PHASES.index(phase)) for phase in PHASES for start, stop in phases.get(phase, ()))
    if rows and client not in clients:
        clients.append(client)
    start, stop, phase = np.array(rows, np.int64).reshape(-1, 3).T
    start, stop = (recorded.put(at, Clock.SCHEDULER) for at in (start, stop))
    number = clients.index(client) if rows else MISSING
    return schema.Phases(client=np.full(len(rows), number), phase=phase.astype(np.int8), start=start, stop=stop)


def _profiles(recorded: _Recorded, runs: Runs) -> tuple[TaskProfile, ...]:
    columns = {name: recorded.columns[f"profiles.{name}"] for name in ("run", "worker", "thread", "started")}
    for name in ("start", "stop"):
        columns[name] = recorded.put(recorded.columns[f"profiles.{name}"], Clock.WORKER, columns["worker"])
    end = np.cumsum(recorded.columns["profiles.nbytes"])
    row_of = dict(zip(zip(runs.run_id.tolist(), runs.worker.tolist(), strict=True), range(len(runs)), strict=True))
    rows = zip(*(column.tolist() for column in columns.values()), pairwise([0, *end.tolist()]), strict=True)
    content = recorded.columns["profiles.content"]
    profiles = [
        TaskProfile(row_of[run, worker], thread, start, stop, started, content[first:last].tobytes())
        for run, worker, thread, started, start, stop, (first, last) in rows
        if (run, worker) in row_of
    ]
    return tuple(sorted(profiles, key=attrgetter("start")))


def _runs(recorded: _Recorded) -> tuple[Runs, list[str]]:
    """Make runs: one begins with a transition to ``processing`` and ends with the task's next one."""
    columns = recorded.columns
    code, task = columns["log.code"], columns["log.task"]
    at = recorded.put(columns["log.at"], Clock.SCHEDULER)
    finish = code % len(STATES)
    order = np.argsort(task, kind="stable")
    begins = np.flatnonzero(finish[order] == _PROCESSING)
    begins = begins[np.argsort(order[begins], kind="stable")]
    row = order[begins]
    following = np.append(order, MISSING)[begins + 1]
    ended = (following != MISSING) & (task[following] == task[row])
    end = np.where(ended, following, MISSING)
    table: dict[str, NDArray[Any]] = {
        "task": task[row],
        "worker": columns["log.worker"][row],
        "run_id": columns["log.extra"][row],
        "outcome": _outcomes(recorded, end, finish),
        "recomputed": np.isin(columns["log.extra"][row], columns["recomputed.run_id"]),
        "assigned": np.where(columns["log.stimulus"][row] == MISSING, MISSING, at[row]),
        "reported": np.where(ended, at[end], MISSING),
    }
    _join(table, recorded)
    _fill_in(table, columns, end)
    notes = _order_instants(table)
    # Its worker reported the cut itself, as it closed: not lost.
    lost = (table["outcome"] == RunOutcome.LOST) & (table["ended"] != MISSING)
    table["outcome"][lost] = RunOutcome.CANCELLED
    return Runs.from_columns(table), notes


def _outcomes(recorded: _Recorded, end: NDArray[Any], finish: NDArray[Any]) -> NDArray[Any]:
    columns = recorded.columns
    stimulus = columns["log.stimulus"][end]
    failures = [i for i, kind in enumerate(recorded.facts["kinds"]) if kind in _FAILURES]
    kind = np.append(columns["stimuli.kind"], MISSING)[stimulus]
    removed = np.isin(stimulus, columns["removals.stimulus"]) & (stimulus != MISSING)
    outcome = np.full(len(end), RunOutcome.CANCELLED, np.int8)
    outcome[removed] = RunOutcome.LOST
    outcome[(finish[end] == _ERRED) & ~removed] = RunOutcome.FAILED
    outcome[np.isin(kind, failures) & (finish[end] != _MEMORY)] = RunOutcome.FAILED
    outcome[finish[end] == _MEMORY] = RunOutcome.SUCCEEDED
    outcome[end == MISSING] = RunOutcome.RUNNING
    return outcome


def _join(table: dict[str, NDArray[Any]], recorded: _Recorded) -> None:
    """Add the workers' rows of their runs; of a run reported twice, the later row counts."""
    run_id = recorded.columns["runs.run_id"]
    numbers, last = np.unique(run_id[::-1], return_index=True)
    # A run without a row gets the last one, in which nothing is known.
    at = np.minimum(np.searchsorted(numbers, table["run_id"]), len(numbers) - 1)
    has_row = numbers[at] == table["run_id"] if len(numbers) else np.zeros(len(at), np.bool_)
    row = np.where(has_row, (len(run_id) - 1 - np.append(last, 0))[at], len(run_id))
    of_worker = instants(Runs, Clock.WORKER)
    for name in RUN[1:]:
        known = recorded.columns[f"runs.{name}"]
        if name in of_worker:
            known = recorded.put(known, Clock.WORKER, recorded.columns["runs.worker"])
        table[name] = np.append(known, Runs.missing()[name])[row]
    # A worker names the run whose slot this one got; a trace, its task.
    order = np.argsort(table["run_id"], kind="stable")
    at = np.minimum(np.searchsorted(table["run_id"][order], table["after"]), len(order) - 1)
    same = (table["after"] != MISSING) & (table["run_id"][order][at] == table["after"])
    table["after"] = np.where(same, table["task"][order][at], MISSING)


def _fill_in(table: dict[str, NDArray[Any]], columns: Mapping[str, NDArray[Any]], end: NDArray[Any]) -> None:
    """Fill in start and stop from the message that ended the run, where a worker's row was lost with it."""
    computed = np.full((2, len(columns["log.at"]) + 1), MISSING, np.int64)
    computed[:, columns["computed.row"]] = [np.rint(columns[f"computed.{name}"] * 1e9) for name in ("start", "stop")]
    start, stop = computed[:, end]
    use = (table["start"] == MISSING) & (end != MISSING) & (start != MISSING)
    # Upstream converts these to the scheduler's clock by an estimate that may be off by more than the run took.
    low, high = table["assigned"][use], table["reported"][use]
    took = np.minimum((stop - start)[use], high - low)
    table["start"][use] = np.clip(start[use], low, high - took)
    table["stop"][use] = table["start"][use] + took


def _order_instants(table: dict[str, NDArray[Any]]) -> list[str]:
    """Keep causes before effects: an instant earlier than the one before it is moved to that."""
    latest = np.full(len(table["task"]), MISSING, np.int64)
    most = moved = 0
    for name in RUN_INSTANTS:
        column = table[name]
        known = column != MISSING
        early = known & (column < latest)
        if name == "reported":  # it was given up before it ended: nothing was recorded
            given_up = early & np.isin(table["outcome"], (RunOutcome.CANCELLED, RunOutcome.LOST))
            column[given_up] = MISSING
            early &= ~given_up
        if early.any():
            most = max(most, int((latest - column)[early].max()))
            moved += int(early.sum())
            column[early] = latest[early]
        latest = np.maximum(latest, column)
    if most < _NOTABLE_NS:
        return []
    by = f"by {format_number(most / 1e6)} ms at most"
    return [f"clocks disagree: {moved} instants were moved, {by}, onto what came before them"]


def since_start(trace: RunTrace) -> RunTrace:
    """Cut a longer recording to what went on at or after ``trace.start``, and the tasks that this refers to."""
    start, runs, tasks = trace.start, trace.runs, len(trace.tasks)
    ended = np.max([runs.assigned, runs.ended, runs.reported], axis=0)
    kept: dict[str, NDArray[Any]] = {"runs": np.flatnonzero((ended >= start) | (runs.outcome == RunOutcome.RUNNING))}
    kept |= {name: np.flatnonzero(getattr(trace, name).at >= start) for name in ("transitions", "releases", "series")}
    kept |= {name: np.flatnonzero(getattr(trace, name).stop >= start) for name in ("transfers", "shuffled", "blocked")}
    stimuli, graphs = trace.transitions.stimulus[kept["transitions"]], np.flatnonzero(trace.graphs.taken_in >= start)
    kept["stimuli"] = np.arange(stimuli.min(initial=len(trace.stimuli)), len(trace.stimuli))
    kept["graphs"] = np.arange(graphs.min(initial=len(trace.graphs)), len(trace.graphs))
    used = np.zeros(tasks + 1, np.bool_)
    for name, rows in kept.items():
        for column, target in POINTS_INTO[name].items():
            if target == "tasks":
                used[getattr(getattr(trace, name), column)[rows]] = True
    used[:-1] |= np.isin(trace.tasks.graph, graphs)
    used[MISSING] = False
    owner = np.repeat(np.arange(tasks), np.diff(trace.dependency_starts))
    edges = used[owner]
    used[trace.dependencies[edges]] = True
    kept["tasks"] = np.flatnonzero(used[:-1])
    number = {name: _renumbered(len(getattr(trace, name)), kept[name]) for name in ("tasks", "graphs", "stimuli")}
    tables = {}
    for name, rows in kept.items():
        table = getattr(trace, name).take(rows)
        pointing = {column: target for column, target in POINTS_INTO[name].items() if target in number}
        tables[name] = replace(
            table, **{column: number[str(target)][getattr(table, column)] for column, target in pointing.items()}
        )
    starts = np.zeros(len(kept["tasks"]) + 1, np.int64)
    np.cumsum(np.bincount(number["tasks"][owner[edges]], minlength=len(kept["tasks"])), out=starts[1:])
    run = _renumbered(len(runs), kept["runs"])
    return replace(
        trace,
        **tables,
        keys=Texts.of(trace.keys[int(task)] for task in kept["tasks"]),
        dependency_starts=starts,
        dependencies=number["tasks"][trace.dependencies[edges]],
        constraints={int(number["tasks"][task]): value for task, value in trace.constraints.items() if used[task]},
        profiles=tuple(
            replace(profile, run=int(run[profile.run])) for profile in trace.profiles if run[profile.run] != MISSING
        ),
    )


def _renumbered(count: int, kept: NDArray[Any]) -> NDArray[np.int32]:
    """New position of each of so many rows; MISSING for those that are not kept, and for MISSING itself."""
    number = np.full(count + 1, MISSING, np.int32)
    number[kept] = np.arange(len(kept))
    return number
