"""RunTrace from a Recording: the scheduler's transitions joined with the workers' rows, on one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Clock, ColumnTable, Int64, Texts
from dask_efficiency.plugin.wings import offered
from dask_efficiency.runs.trace.batch import RUN
from dask_efficiency.runs.trace.recording import Recording
from dask_efficiency.runs.trace.run_trace import RunTrace, TaskProfile, WorkerSpec, cost_note
from dask_efficiency.runs.trace.schema import (
    PHASES,
    RUN_INSTANTS,
    SHUFFLED,
    STATES,
    Blocked,
    Graphs,
    Phases,
    Releases,
    RunOutcome,
    Runs,
    Series,
    Shuffled,
    Stimuli,
    Tasks,
    Transfers,
    Transitions,
    WorkerEvents,
    instants,
)

_PROCESSING, _MEMORY, _ERRED = (STATES.index(state) for state in ("processing", "memory", "erred"))

#: Stimuli by which a worker reports that a task failed.
_FAILURES = ("task-erred", "execute-unknown-error")

#: Instants of a profile by its worker's monotonic clock.
_SPAN = ("start", "stop")

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
    clock = _Clock(recording)
    columns, facts = recording.columns, recording.facts
    late = [] if start is None or start >= facts["started"] else [_late_note(facts["started"] - start)]
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
    profiles = _profiles(columns, runs, clock)
    of_no_run = {"profiles": len(columns["profiles.run"]) - len(profiles)}
    dropped = Counter(facts["dropped"]) + Counter(of_no_run)
    trace = RunTrace(
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
        graphs=Graphs(**_table(columns, "graphs", Graphs, clock)),
        releases=Releases(**_table(columns, "releases", Releases, clock)),
        transitions=transitions,
        stimuli=Stimuli(**_table(columns, "stimuli", Stimuli, clock, columns["stimuli.worker"])),
        transfers=_transfers(columns, clock),
        shuffled=_shuffled(columns, clock),
        worker_events=WorkerEvents(**_table(columns, "worker_events", WorkerEvents, clock)),
        blocked=_blocked(columns, clock),
        phases=_phases(phases or {}, client, clients, clock),
        series=Series(**_table(columns, "series", Series, clock)),
        clients=tuple(clients),
        constraints={int(task): _plain(value) for task, value in facts["constraints"].items()},
        config=facts["config"],
        versions=facts["versions"],
        dropped=dict(dropped),
        notes=(*facts["notes"], *late, *moved, *cost_note(profiles), *_not_profiled(facts.get("not_profiled", {}))),
        profiles=profiles,
    )
    return _with_gpu_times(trace if begin == facts["started"] else since_start(trace))


def _with_gpu_times(trace: RunTrace) -> RunTrace:
    """Fill in the GPU time of profiled runs from their profiles, if the wing that reads these is there."""
    read = offered("gpu-times/torch") if trace.profiles else None
    return trace if read is None else read(trace)


def _not_profiled(reasons: Mapping[str, int]) -> list[str]:
    return [f"not profiled, though asked for: {count} runs, as {why}" for why, count in sorted(reasons.items())]


def _late_note(ns: int) -> str:
    return f"the recording began {ns / 1e9:.3g} s after what it was asked for: an earlier one had failed"


class _Clock:
    """Converts instants of every process to the scheduler's clock, in nanoseconds since the epoch."""

    def __init__(self, recording: Recording) -> None:
        facts = recording.facts
        #: Added to the scheduler's monotonic clock.
        self.epoch = int(facts["epoch"])
        workers = facts["workers"]
        #: By worker, added to its monotonic clock.
        self._offsets = np.array([*(int(w["offset"]) + self.epoch for w in workers), self.epoch], np.int64)
        #: By worker, added to its wall clock.
        self._walls = np.array([*(int(w["offset"]) + self.epoch - int(w["wall"]) for w in workers), 0], np.int64)

    def put(self, at: NDArray[Any], clock: Clock, worker: NDArray[Any] | None = None) -> Int64:
        """Convert instants of a clock; MISSING stays, and a worker that is MISSING is the scheduler."""
        if clock is Clock.SCHEDULER:
            return np.where(at == MISSING, MISSING, at + self.epoch)
        ahead = self._offsets if clock is Clock.WORKER else self._walls
        return np.where(at == MISSING, MISSING, at + ahead[worker])


def _table(
    columns: Mapping[str, NDArray[Any]],
    group: str,
    table: type[ColumnTable],
    clock: _Clock,
    worker: NDArray[Any] | None = None,
) -> dict[str, NDArray[Any]]:
    """Select a table's columns that are in the recording, with all instants on the scheduler's clock.

    ``worker`` is, by row, the worker whose clock was read.
    """
    table_columns = {}
    for name, described in table.schema().items():
        column = columns.get(f"{group}.{name}")
        if column is not None:
            table_columns[name] = column if described.clock is None else clock.put(column, described.clock, worker)
    return table_columns


def _workers(facts: Mapping[str, Any]) -> list[WorkerSpec]:
    specs = []
    for worker in facts["workers"]:
        # Monotonic clocks begin anywhere; the difference of the wall clocks is what a reader can use.
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
                cores=float(worker.get("cores", 0.0)),
            )
        )
    return specs


def _plain(constraints: Mapping[str, Any]) -> dict[str, Any]:
    """Undo what travelling does: lists arrive as tuples."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in constraints.items()}


def _nbytes(columns: Mapping[str, NDArray[Any]], count: int) -> Int64:
    nbytes = np.full(count, MISSING, np.int64)
    there = columns["log.code"] % len(STATES) == _MEMORY
    nbytes[columns["log.task"][there]] = columns["log.extra"][there]  # the last one stays
    return nbytes


def _dependencies(columns: Mapping[str, NDArray[Any]], count: int) -> tuple[Int64, NDArray[np.int32]]:
    """Collect each task's dependencies, each once."""
    edges = np.unique(columns["edges.task"].astype(np.int64) << 32 | columns["edges.dependency"].astype(np.int64))
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(edges >> 32, minlength=count), out=starts[1:])
    return starts, (edges & 0xFFFFFFFF).astype(np.int32)


def _transitions(columns: Mapping[str, NDArray[Any]], clock: _Clock) -> Transitions:
    own = columns["log.stimulus"] != MISSING  # else: tasks that were processing when the recording began
    code = columns["log.code"][own]
    table = {name: column[own] for name, column in _table(columns, "log", Transitions, clock).items()}
    return Transitions(**table, start=code // len(STATES), finish=code % len(STATES))


def _transfers(columns: Mapping[str, NDArray[Any]], clock: _Clock) -> Transfers:
    receiver = columns["transfers.worker"]
    known = (columns["transfers.task"] != MISSING) & (columns["transfers.arrived"] != SHUFFLED)
    table = _table(columns, "transfers", Transfers, clock, receiver)
    transfers = Transfers(**table | {"receiver": receiver, "arrived": table["arrived"] != 0})
    return transfers.take(np.flatnonzero(known)[np.argsort(transfers.stop[known], kind="stable")])


def _shuffled(columns: Mapping[str, NDArray[Any]], clock: _Clock) -> Shuffled:
    sender, receiver = columns["transfers.worker"], columns["transfers.sender"]
    known = (columns["transfers.task"] != MISSING) & (columns["transfers.arrived"] == SHUFFLED)
    table = _table(columns, "transfers", Shuffled, clock, sender)
    shuffled = Shuffled(**table | {"sender": sender, "receiver": receiver})
    return shuffled.take(np.flatnonzero(known)[np.argsort(shuffled.stop[known], kind="stable")])


def _blocked(columns: Mapping[str, NDArray[Any]], clock: _Clock) -> Blocked:
    """Join the scheduler's own rows with those of the workers."""
    groups = [_table(columns, group, Blocked, clock, columns[f"{group}.worker"]) for group in ("blocked", "blocks")]
    table = {name: np.concatenate([group[name] for group in groups]) for name in Blocked.dtypes()}
    return Blocked(**table).take(np.argsort(table["start"], kind="stable"))


def _phases(phases: Mapping[str, Sequence[tuple[int, int]]], client: str, clients: list[str], clock: _Clock) -> Phases:
    rows = sorted((start, stop, PHASES.index(phase)) for phase in PHASES for start, stop in phases.get(phase, ()))
    if rows and client not in clients:
        clients.append(client)
    start, stop, phase = np.array(rows, np.int64).reshape(-1, 3).T
    number = clients.index(client) if rows else MISSING
    return Phases(
        client=np.full(len(rows), number, np.int32),
        phase=phase.astype(np.int8),
        start=clock.put(start, Clock.SCHEDULER),
        stop=clock.put(stop, Clock.SCHEDULER),
    )


def _profiles(columns: Mapping[str, NDArray[Any]], runs: Runs, clock: _Clock) -> tuple[TaskProfile, ...]:
    """Keep the profiles whose run is in the trace."""
    number = columns["profiles.run"]
    order = np.argsort(runs.run_id, kind="stable")
    at = np.searchsorted(runs.run_id, number, sorter=order)
    of = {name: clock.put(columns[f"profiles.{name}"], Clock.WORKER, columns["profiles.worker"]) for name in _SPAN}
    ends = np.cumsum(columns["profiles.nbytes"])
    found = []
    for i, row in enumerate(order[np.minimum(at, len(order) - 1)].tolist() if len(order) else ()):
        if runs.run_id[row] == number[i] and runs.worker[row] == columns["profiles.worker"][i]:
            content = columns["profiles.content"][ends[i] - columns["profiles.nbytes"][i] : ends[i]]
            thread, started = int(columns["profiles.thread"][i]), int(columns["profiles.started"][i])
            found.append(TaskProfile(row, thread, int(of["start"][i]), int(of["stop"][i]), started, content.tobytes()))
    return tuple(sorted(found, key=attrgetter("start")))


def _runs(recording: Recording, clock: _Clock) -> tuple[Runs, list[str]]:
    """Make runs: one begins with a transition to ``processing`` and ends with the task's next one."""
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
        "assigned": np.where(
            columns["log.stimulus"][row] == MISSING, MISSING, clock.put(columns["log.at"][row], Clock.SCHEDULER)
        ),
        "reported": np.where(ended, clock.put(columns["log.at"][end], Clock.SCHEDULER), MISSING),
    }
    _join(table, columns, clock)
    _fill_in(table, columns, clock, end)
    notes = _order_instants(table)
    # Its worker reported the cut itself, as it closed: not lost.
    lost = (table["outcome"] == RunOutcome.LOST) & (table["ended"] != MISSING)
    table["outcome"][lost] = RunOutcome.CANCELLED
    return Runs.from_columns(table), notes


def _outcomes(recording: Recording, end: NDArray[Any], finish: NDArray[Any]) -> NDArray[Any]:
    columns = recording.columns
    stimulus = columns["log.stimulus"][end]
    kinds = recording.facts["kinds"]
    failures = [i for i, kind in enumerate(kinds) if kind in _FAILURES]
    kind = np.append(columns["stimuli.kind"], MISSING)[stimulus]
    removed = np.isin(stimulus, columns["removals.stimulus"]) & (stimulus != MISSING)
    outcome = np.full(len(end), RunOutcome.CANCELLED, np.int8)
    outcome[removed] = RunOutcome.LOST
    outcome[(finish[end] == _ERRED) & ~removed] = RunOutcome.FAILED
    outcome[np.isin(kind, failures) & (finish[end] != _MEMORY)] = RunOutcome.FAILED
    outcome[finish[end] == _MEMORY] = RunOutcome.SUCCEEDED
    outcome[end == MISSING] = RunOutcome.RUNNING
    return outcome


def _join(table: dict[str, NDArray[Any]], columns: Mapping[str, NDArray[Any]], clock: _Clock) -> None:
    """Add the workers' rows of their runs; of a run reported twice, the later row counts."""
    numbers, last = np.unique(columns["runs.run_id"][::-1], return_index=True)
    rows = len(columns["runs.run_id"]) - 1 - last
    at = np.searchsorted(numbers, table["run_id"])
    at[at == len(numbers)] = 0
    found = (numbers[at] == table["run_id"]) if len(numbers) else np.zeros(len(at), np.bool_)
    row = rows[at] if len(numbers) else at
    of_worker = instants(Runs, Clock.WORKER)
    for name in RUN:
        if name in ("run_id", "after"):
            continue
        known = columns[f"runs.{name}"]
        if name in of_worker:
            known = clock.put(known, Clock.WORKER, columns["runs.worker"])
        missing = Runs.missing()[name]
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
    """Fill in start and stop from the message that ended the run, where a worker's row was lost with it."""
    computed = np.full((len(columns["log.at"]) + 1, 2), MISSING, np.int64)
    for i, name in enumerate(("start", "stop")):
        seconds = columns[f"computed.{name}"]
        computed[columns["computed.row"], i] = np.rint(seconds * 1e9)
    reported = computed[end]
    use = (table["start"] == MISSING) & (end != MISSING) & (reported[:, 0] != MISSING)
    # Upstream converts these to the scheduler's clock by an estimate that may be off by more than the run took.
    low, high = table["assigned"][use], table["reported"][use]
    took = np.minimum(reported[use, 1] - reported[use, 0], high - low)
    table["start"][use] = np.clip(reported[use, 0], low, high - took)
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
    return [f"clocks disagree: {moved} instants were moved, by {most / 1e6:.3g} ms at most, onto what came before them"]


def since_start(trace: RunTrace) -> RunTrace:
    """Cut a longer recording to what went on at or after ``trace.start``, and the tasks that this refers to."""
    start = trace.start
    ended = np.max([trace.runs.assigned, trace.runs.ended, trace.runs.reported], axis=0)
    there = (ended >= start) | (trace.runs.outcome == RunOutcome.RUNNING)
    runs, run = trace.runs.take(there), np.cumsum(there) - 1
    transitions = trace.transitions.take(trace.transitions.at >= start)
    transfers = trace.transfers.take(trace.transfers.stop >= start)
    shuffled = trace.shuffled.take(trace.shuffled.stop >= start)
    releases = trace.releases.take(trace.releases.at >= start)
    graphs = np.flatnonzero(trace.graphs.taken_in >= start)
    used = np.zeros(len(trace.tasks) + 1, np.bool_)
    for column in (runs.task, runs.after, transitions.task, transfers.task, shuffled.task, releases.task):
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
        tasks=replace(tasks, graph=_shifted(tasks.graph, first_graph)),
        dependency_starts=starts,
        dependencies=number[trace.dependencies[edges]],
        runs=replace(runs, task=number[runs.task], after=number[runs.after]),
        graphs=trace.graphs.take(np.arange(first_graph, len(trace.graphs))),
        releases=replace(releases, task=number[releases.task]),
        transitions=replace(
            transitions, task=number[transitions.task], stimulus=_shifted(transitions.stimulus, first_stimulus)
        ),
        stimuli=replace(stimuli, graph=_shifted(stimuli.graph, first_graph)),
        transfers=replace(transfers, task=number[transfers.task]),
        shuffled=replace(shuffled, task=number[shuffled.task]),
        blocked=trace.blocked.take(trace.blocked.stop >= start),
        series=trace.series.take(trace.series.at >= start),
        constraints={int(number[task]): value for task, value in trace.constraints.items() if used[task]},
        profiles=tuple(replace(profile, run=int(run[profile.run])) for profile in trace.profiles if there[profile.run]),
    )


def _shifted(numbers: NDArray[Any], first: int) -> NDArray[Any]:
    return np.where(numbers < first, MISSING, numbers - first)
