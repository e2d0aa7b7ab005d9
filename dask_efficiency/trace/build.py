"""From a recording to a TraceTables: the scheduler's transitions joined with the workers' rows, on one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.trace.batch import RUN
from dask_efficiency.trace.recorder import Recording
from dask_efficiency.trace.run_trace import (
    PHASES,
    STATES,
    Blocked,
    Graphs,
    Outcome,
    Phases,
    Releases,
    Runs,
    Series,
    Stimuli,
    Tasks,
    TraceTables,
    Transfers,
    Transitions,
    WorkerEvents,
    WorkerSpec,
)
from dask_efficiency.trace.tables import MISSING, Int64, Table, Texts

_PROCESSING, _MEMORY, _ERRED = (STATES.index(state) for state in ("processing", "memory", "erred"))

#: Instants of a run in the order in which they must stand; ``assigned`` and ``reported`` are the scheduler's.
_INSTANTS = ("assigned", "received", "ready", "executing", "submitted", "start", "stop", "ended", "reported")

#: Instants of a run that a worker notes.
_OF_WORKER = ("received", "ready", "executing", "submitted", "start", "stop", "ended", "seceded")

#: Stimuli by which a worker tells that a task failed.
_FAILURES = ("task-erred", "execute-unknown-error")

#: Less than this and two clocks are read as one; more is worth a note.
_NOTABLE_NS = 1_000_000


def build(
    recording: Recording,
    *,
    name: str,
    start: int | None = None,
    phases: Mapping[str, Sequence[tuple[int, int]]] | None = None,
    client: str = "",
    notes: Sequence[str] = (),
) -> TraceTables:
    """The trace of a recording.

    Parameters
    ----------
    recording
        What the scheduler sent.
    name
        What the run is called.
    start
        Nothing that ended before this instant is in the trace; nanoseconds by the scheduler's monotonic
        clock. The beginning of the recording by default.
    phases
        Intervals of the client by phase, by the scheduler's monotonic clock.
    client
        Whose they are.
    notes
        To go with the recording's own.

    Returns
    -------
    TraceTables
        From ``start`` to the instant of the recording.
    """
    clock = _Clock(recording)
    columns, facts = recording.columns, recording.facts
    late = [] if start is None or start >= facts["started"] else [_late(facts["started"] - start)]
    begin = facts["started"] if start is None else max(start, facts["started"])
    runs, moved = _runs(recording, clock)
    transitions = _transitions(columns, clock)
    clients = list(facts["clients"])
    tasks = Tasks.from_columns(
        {
            **{name: columns[f"tasks.{name}"] for name in ("prefix", "span", "graph", "wanted")},
            "nbytes": _nbytes(columns, len(recording.keys)),
            **{
                f"priority_{part}": columns["tasks.priority"][:, i] for i, part in enumerate(("user", "graph", "order"))
            },
        }
    )
    starts, dependencies = _dependencies(columns, len(tasks))
    trace = TraceTables(
        name=name,
        start=begin + clock.epoch,
        stop=facts["stopped"] + clock.epoch,
        keys=recording.keys,
        tasks=tasks,
        dependency_starts=starts,
        dependencies=dependencies,
        runs=runs,
        prefixes=tuple(facts["prefixes"]),
        spans=tuple(facts["spans"]),
        workers=tuple(_workers(facts)),
        stimulus_kinds=tuple(facts["kinds"]),
        graphs=Graphs.from_columns(clock.put(_table(columns, "graphs", Graphs), "received", "taken_in")),
        releases=Releases.from_columns(clock.put(_table(columns, "releases", Releases), "at")),
        transitions=transitions,
        stimuli=_stimuli(columns, clock),
        transfers=_transfers(columns, clock),
        worker_events=WorkerEvents.from_columns(clock.put(_table(columns, "worker_events", WorkerEvents), "at")),
        blocked=_blocked(columns, clock),
        phases=_phases(phases or {}, client, clients, clock),
        series=Series.from_columns(clock.put(_table(columns, "series", Series), "at")),
        clients=tuple(clients),
        constraints={int(task): _plain(value) for task, value in facts["constraints"].items()},
        config=facts["config"],
        versions=facts["versions"],
        dropped={table: count for table, count in facts["dropped"].items() if count},
        notes=(*notes, *facts["notes"], *late, *moved),
    )
    return trace if begin == facts["started"] else _since(trace)


def _late(ns: int) -> str:
    return f"the recording began {ns / 1e9:.3g} s after what it was asked for: an earlier one had failed"


class _Clock:
    """Puts instants of every process on the scheduler's clock, in nanoseconds since the epoch."""

    def __init__(self, recording: Recording) -> None:
        facts = recording.facts
        #: Added to the scheduler's monotonic clock.
        self.epoch = int(facts["epoch"])
        workers = facts["workers"]
        #: By worker, added to its monotonic clock.
        self._offsets = np.array([*(int(w["offset"]) + self.epoch for w in workers), self.epoch], np.int64)
        #: By worker, added to its clock of the day.
        self._walls = np.array([*(int(w["offset"]) + self.epoch - int(w["wall"]) for w in workers), 0], np.int64)

    def own(self, at: NDArray[Any]) -> Int64:
        """Instants of the scheduler; MISSING stays."""
        return np.where(at == MISSING, MISSING, at + self.epoch)

    def of(self, worker: NDArray[Any], at: NDArray[Any]) -> Int64:
        """Instants of workers by their monotonic clocks; a worker that is MISSING is the scheduler."""
        return np.where(at == MISSING, MISSING, at + self._offsets[worker])

    def of_day(self, worker: NDArray[Any], at: NDArray[Any]) -> Int64:
        """Instants by the workers' clocks of the day."""
        return np.where(at == MISSING, MISSING, at + self._walls[worker])

    def put(self, columns: dict[str, NDArray[Any]], *instants: str) -> dict[str, NDArray[Any]]:
        """Columns, with these on the scheduler's clock."""
        return {name: self.own(column) if name in instants else column for name, column in columns.items()}


def _table(columns: Mapping[str, NDArray[Any]], name: str, table: type[Table]) -> dict[str, NDArray[Any]]:
    return {column: columns[f"{name}.{column}"] for column in table.dtypes() if f"{name}.{column}" in columns}


def _workers(facts: Mapping[str, Any]) -> list[WorkerSpec]:
    specs = []
    for worker in facts["workers"]:
        # Monotonic clocks begin anywhere; what a reader can use is how far the clocks of the day differ.
        offset = int(worker["offset"]) + int(facts["epoch"]) - int(worker["wall"]) if worker["offset"] else 0
        specs.append(
            WorkerSpec(
                name=worker["name"],
                address=worker["address"],
                host=worker["host"],
                nthreads=worker["nthreads"],
                memory_limit=worker["memory_limit"],
                resources=worker["resources"],
                clock_offset=offset,
                clock_error=worker["error"],
            )
        )
    return specs


def _plain(constraints: Mapping[str, Any]) -> dict[str, Any]:
    """As it was before it travelled: lists arrive as tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in constraints.items()}


def _nbytes(columns: Mapping[str, NDArray[Any]], count: int) -> Int64:
    nbytes = np.full(count, MISSING, np.int64)
    there = columns["log.code"] % len(STATES) == _MEMORY
    nbytes[columns["log.task"][there]] = columns["log.extra"][there]  # the last one stays
    return nbytes


def _dependencies(columns: Mapping[str, NDArray[Any]], count: int) -> tuple[Int64, NDArray[np.int32]]:
    """Each task's dependencies, each once."""
    edges = np.unique(columns["edges.task"].astype(np.int64) << 32 | columns["edges.dependency"].astype(np.int64))
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(edges >> 32, minlength=count), out=starts[1:])
    return starts, (edges & 0xFFFFFFFF).astype(np.int32)


def _transitions(columns: Mapping[str, NDArray[Any]], clock: _Clock) -> Transitions:
    own = columns["log.stimulus"] != MISSING  # else: what went on when the recording began
    code = columns["log.code"][own]
    return Transitions(
        at=clock.own(columns["log.at"][own]),
        task=columns["log.task"][own],
        start=code // len(STATES),
        finish=code % len(STATES),
        worker=columns["log.worker"][own],
        stimulus=columns["log.stimulus"][own],
    )


def _stimuli(columns: Mapping[str, NDArray[Any]], clock: _Clock) -> Stimuli:
    at = clock.of_day(columns["stimuli.worker"], columns["stimuli.at"])
    return Stimuli(kind=columns["stimuli.kind"], at=at, graph=columns["stimuli.graph"])


def _transfers(columns: Mapping[str, NDArray[Any]], clock: _Clock) -> Transfers:
    receiver = columns["transfers.worker"]
    known = columns["transfers.task"] != MISSING
    transfers = Transfers(
        task=columns["transfers.task"],
        sender=columns["transfers.sender"],
        receiver=receiver,
        nbytes=columns["transfers.nbytes"],
        arrived=columns["transfers.arrived"] != 0,
        **{name: clock.of(receiver, columns[f"transfers.{name}"]) for name in ("queued", "start", "stop")},
    )
    return transfers.take(np.flatnonzero(known)[np.argsort(transfers.stop[known], kind="stable")])


def _blocked(columns: Mapping[str, NDArray[Any]], clock: _Clock) -> Blocked:
    table = {name: np.concatenate([columns[f"blocked.{name}"], columns[f"blocks.{name}"]]) for name in Blocked.dtypes()}
    for name in ("start", "stop"):
        table[name] = clock.of(table["worker"], table[name])
    return Blocked.from_columns(table).take(np.argsort(table["start"], kind="stable"))


def _phases(phases: Mapping[str, Sequence[tuple[int, int]]], client: str, clients: list[str], clock: _Clock) -> Phases:
    rows = sorted((start, stop, PHASES.index(phase)) for phase in PHASES for start, stop in phases.get(phase, ()))
    if rows and client not in clients:
        clients.append(client)
    start, stop, phase = np.array(rows, np.int64).reshape(-1, 3).T
    number = clients.index(client) if rows else MISSING
    return Phases(
        client=np.full(len(rows), number, np.int32),
        phase=phase.astype(np.int8),
        start=start + clock.epoch,
        stop=stop + clock.epoch,
    )


# -- runs ------------------------------------------------------------------------------------


def _runs(recording: Recording, clock: _Clock) -> tuple[Runs, list[str]]:
    """A run begins with a transition to ``processing`` and ends with the task's next one."""
    columns = recording.columns
    code, task = columns["log.code"], columns["log.task"]
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
        "outcome": _outcomes(recording, end, finish),
        "recomputed": np.isin(columns["log.extra"][row], columns["recomputed.run_id"]),
        "assigned": np.where(columns["log.stimulus"][row] == MISSING, MISSING, clock.own(columns["log.at"][row])),
        "reported": np.where(ended, clock.own(columns["log.at"][end]), MISSING),
        "gpu_ns": np.zeros(len(row), np.int64),
    }
    _join(table, columns, clock)
    _fill_in(table, columns, clock, end)
    notes = _order(table)
    # Cut off with its worker, which said so itself: not lost.
    lost = (table["outcome"] == Outcome.LOST) & (table["ended"] != MISSING)
    table["outcome"][lost] = Outcome.CANCELLED
    return Runs.from_columns(table), notes


def _outcomes(recording: Recording, end: NDArray[Any], finish: NDArray[Any]) -> NDArray[Any]:
    columns = recording.columns
    stimulus = columns["log.stimulus"][end]
    kinds = recording.facts["kinds"]
    failures = [i for i, kind in enumerate(kinds) if kind in _FAILURES]
    kind = np.append(columns["stimuli.kind"], MISSING)[stimulus]
    removed = np.isin(stimulus, columns["removals.stimulus"]) & (stimulus != MISSING)
    outcome = np.full(len(end), Outcome.CANCELLED, np.int8)
    outcome[removed] = Outcome.LOST
    outcome[(finish[end] == _ERRED) & ~removed] = Outcome.FAILED
    outcome[np.isin(kind, failures) & (finish[end] != _MEMORY)] = Outcome.FAILED
    outcome[finish[end] == _MEMORY] = Outcome.SUCCEEDED
    outcome[end == MISSING] = Outcome.RUNNING
    return outcome


def _join(table: dict[str, NDArray[Any]], columns: Mapping[str, NDArray[Any]], clock: _Clock) -> None:
    """Add what the workers noted of their runs; of a run told twice, the later row counts."""
    numbers, last = np.unique(columns["runs.run_id"][::-1], return_index=True)
    rows = len(columns["runs.run_id"]) - 1 - last
    at = np.searchsorted(numbers, table["run_id"])
    at[at == len(numbers)] = 0
    found = (numbers[at] == table["run_id"]) if len(numbers) else np.zeros(len(at), np.bool_)
    row = rows[at] if len(numbers) else at
    for name in RUN:
        if name in ("run_id", "after"):
            continue
        known = columns[f"runs.{name}"]
        if name in _OF_WORKER:
            known = clock.of(columns["runs.worker"], known)
        missing = 0 if name.endswith("_ns") else MISSING
        table[name] = np.where(found, known[row], missing) if len(known) else np.full(len(row), missing, np.int64)
    table["after"] = np.full(len(row), MISSING, np.int32)
    if len(numbers):
        order = np.argsort(table["run_id"], kind="stable")
        after = np.where(found, columns["runs.after"][row], MISSING)
        at = np.minimum(np.searchsorted(table["run_id"][order], after), len(order) - 1)
        same = (after != MISSING) & (table["run_id"][order][at] == after)
        table["after"] = np.where(same, table["task"][order][at], MISSING)


def _fill_in(
    table: dict[str, NDArray[Any]], columns: Mapping[str, NDArray[Any]], clock: _Clock, end: NDArray[Any]
) -> None:
    """Where a worker's row was lost with it: what the scheduler was told when the run ended."""
    computed = np.full((len(columns["log.at"]) + 1, 2), MISSING, np.int64)
    for i, name in enumerate(("start", "stop")):
        seconds = columns[f"computed.{name}"]
        computed[columns["computed.row"], i] = np.rint(seconds * 1e9)
    told = computed[end]
    use = (table["start"] == MISSING) & (end != MISSING) & (told[:, 0] != MISSING)
    # Upstream puts these on the scheduler's clock by a guess that may be off by more than the run took.
    low, high = table["assigned"][use], table["reported"][use]
    took = np.minimum(told[use, 1] - told[use, 0], high - low)
    table["start"][use] = np.clip(told[use, 0], low, high - took)
    table["stop"][use] = table["start"][use] + took


def _order(table: dict[str, NDArray[Any]]) -> list[str]:
    """Keep causes before effects: an instant that is earlier than the one before it is moved onto it."""
    latest = np.full(len(table["task"]), MISSING, np.int64)
    most = moved = 0
    for name in _INSTANTS:
        column = table[name]
        known = column != MISSING
        early = known & (column < latest)
        if name == "reported":  # it was given up before it ended: nothing was booked
            given_up = early & np.isin(table["outcome"], (Outcome.CANCELLED, Outcome.LOST))
            column[given_up] = MISSING
            early &= ~given_up
        if early.any():
            most = max(most, int((latest - column)[early].max()))
            moved += int(early.sum())
            column[early] = latest[early]
        latest = np.maximum(latest, column)
    if most < _NOTABLE_NS:
        return []
    return [f"clocks disagree: {moved} instants were moved, by {most / 1e6:.3g} ms at most, onto what came before them"]


# -- a part ----------------------------------------------------------------------------------


def _since(trace: TraceTables) -> TraceTables:
    """Of a longer recording, what was going on at or after ``trace.start``, and the tasks that it names."""
    start = trace.start
    ended = np.max([trace.runs.assigned, trace.runs.ended, trace.runs.reported], axis=0)
    runs = trace.runs.take((ended >= start) | (trace.runs.outcome == Outcome.RUNNING))
    transitions = trace.transitions.take(trace.transitions.at >= start)
    transfers = trace.transfers.take(trace.transfers.stop >= start)
    releases = trace.releases.take(trace.releases.at >= start)
    graphs = np.flatnonzero(trace.graphs.taken_in >= start)
    used = np.zeros(len(trace.tasks) + 1, np.bool_)
    for column in (runs.task, runs.after, transitions.task, transfers.task, releases.task):
        used[column] = True
    used[:-1] |= np.isin(trace.tasks.graph, graphs)
    used[MISSING] = False
    owner = np.repeat(np.arange(len(trace.tasks)), np.diff(trace.dependency_starts))
    edges = used[owner]
    used[trace.dependencies[edges]] = True
    kept = np.flatnonzero(used[:-1])
    number = np.full(len(trace.tasks) + 1, MISSING, np.int32)
    number[kept] = np.arange(len(kept))
    starts = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(np.bincount(number[owner[edges]], minlength=len(kept)), out=starts[1:])
    first_stimulus = int(transitions.stimulus.min()) if len(transitions) else len(trace.stimuli)
    first_graph = int(graphs[0]) if len(graphs) else len(trace.graphs)
    tasks, stimuli = trace.tasks.take(kept), trace.stimuli.take(np.arange(first_stimulus, len(trace.stimuli)))
    return replace(
        trace,
        keys=Texts.of(trace.keys[int(task)] for task in kept),
        tasks=replace(tasks, graph=_less(tasks.graph, first_graph)),
        dependency_starts=starts,
        dependencies=number[trace.dependencies[edges]],
        runs=replace(runs, task=number[runs.task], after=number[runs.after]),
        graphs=trace.graphs.take(np.arange(first_graph, len(trace.graphs))),
        releases=replace(releases, task=number[releases.task]),
        transitions=replace(
            transitions, task=number[transitions.task], stimulus=_less(transitions.stimulus, first_stimulus)
        ),
        stimuli=replace(stimuli, graph=_less(stimuli.graph, first_graph)),
        transfers=replace(transfers, task=number[transfers.task]),
        blocked=trace.blocked.take(trace.blocked.stop >= start),
        series=trace.series.take(trace.series.at >= start),
        constraints={int(number[task]): value for task, value in trace.constraints.items() if used[task]},
    )


def _less(numbers: NDArray[Any], first: int) -> NDArray[Any]:
    return np.where(numbers < first, MISSING, numbers - first)
