"""Replay of a recorded trace with changes, which gives another trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Clock, Int32, Int64
from dask_efficiency.runs.replay.changes import UNCHANGED, Changes
from dask_efficiency.runs.replay.durations import (
    Durations,
    RunTransfers,
    durations,
    repaired,
    run_transfers,
    scaled,
    task_times,
)
from dask_efficiency.runs.replay.schedule import Schedule, VirtualCluster
from dask_efficiency.runs.trace import schema
from dask_efficiency.runs.trace.run_causes import Constraints, RunCauses, constraints
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import STATES, RunOutcome, Runs, instants, values_at

_WAITING, _QUEUED, _PROCESSING = map(STATES.index, ("waiting", "queued", "processing"))
_MEMORY, _RELEASED = map(STATES.index, ("memory", "released"))


def _rebuild(
    trace: RunTrace, times: Durations, limits: Constraints, moved: RunTransfers, schedule: Schedule, changed: Changes
) -> RunTrace:
    runs, new = trace.runs, _instants(trace, times, schedule)
    order = np.lexsort((np.arange(len(runs)), new["assigned"]))
    share = schedule.compute / np.maximum(runs.stop - runs.start, 1)
    exact = schedule.compute == runs.stop - runs.start
    columns = runs.columns() | new
    columns |= {
        "worker": schedule.worker,
        "slot": np.where(schedule.slot != MISSING, schedule.slot, runs.slot),
        "after": np.where(schedule.after != MISSING, runs.task[schedule.after], MISSING),
        "cpu_ns": np.where(exact, runs.cpu_ns, (runs.cpu_ns * share).astype(np.int64)),
        "gpu_ns": np.where(exact, runs.gpu_ns, (runs.gpu_ns * share).astype(np.int64)),
        "unspill_ns": np.rint(runs.unspill_ns * changed.part("spill")).astype(np.int64),
        "spill_ns": np.rint(runs.spill_ns * changed.part("spill")).astype(np.int64),
    }
    stimuli, transitions = _scheduler(trace, limits, schedule)
    anchors = _client_anchors(trace, schedule)
    graphs, phases, releases = trace.graphs, trace.phases, trace.releases
    taking_in = scaled(graphs.taken_in - graphs.received, changed.part("scheduler"))
    taken_in = np.where(graphs.taken_in == MISSING, MISSING, schedule.received + taking_in)
    start, stop = (_moved(anchors, phases.client, at) for at in (phases.start, phases.stop))
    again = replace(
        trace,
        runs=Runs(**{name: column[order] for name, column in columns.items()}),
        graphs=replace(graphs, received=schedule.received, taken_in=taken_in),
        releases=replace(releases, at=_moved(anchors, releases.client, releases.at)),
        transitions=transitions,
        stimuli=stimuli,
        transfers=_transfers(trace, new["received"], schedule, moved, changed.part("transfer")),
        phases=replace(phases, start=start, stop=stop),
        series=schema.Series.empty(),
        blocked=schema.Blocked.empty(),
        profiles=(),
        notes=(*trace.notes, "A replay: its times are worked out, not recorded."),
    )
    last = [max(run.runs.reported.max(initial=0), run.phases.stop.max(initial=0)) for run in (trace, again)]
    return replace(again, stop=max(again.start, int(last[1]) + trace.stop - int(last[0])))


def _instants(trace: RunTrace, times: Durations, schedule: Schedule) -> dict[str, Int64]:
    runs = trace.runs
    received = schedule.assigned + times.to_worker
    stop = schedule.start + schedule.compute
    columns = {
        "assigned": schedule.assigned,
        "received": received,
        "ready": received + times.fetch,
        "executing": schedule.executing,
        "submitted": schedule.start - np.maximum(runs.start - np.maximum(runs.submitted, runs.executing), 0),
        "start": schedule.start,
        "stop": stop,
        "ended": stop + times.finish,
        "reported": schedule.reported,
        "seceded": schedule.freed,
    }
    for name in instants(Runs, Clock.WORKER):
        # An instant that was not recorded is unknown in the replay too.
        known = getattr(runs, name) != MISSING
        if name not in ("received", "ready"):
            known &= schedule.executing != MISSING
        columns[name] = np.where(known, columns[name], MISSING)
    return columns


def _scheduler(trace: RunTrace, limits: Constraints, schedule: Schedule) -> tuple[schema.Stimuli, schema.Transitions]:
    """Make a stimulus for each graph and each run's end, with the transitions to and from processing that it causes."""
    runs, graphs = trace.runs, len(trace.graphs)
    ended = np.flatnonzero(schedule.reported != MISSING)
    at = np.concatenate([schedule.received, schedule.reported[ended]])
    of_graph = np.concatenate([np.arange(graphs), np.full(len(ended), MISSING)])
    order = np.argsort(at, kind="stable")
    position = np.empty(len(at), np.int64)
    position[order] = np.arange(len(at))
    names = trace.stimulus_kinds
    of_end, of_update = (names.index(name) if name in names else MISSING for name in ("task-finished", "update-graph"))
    kind = np.where(of_graph == MISSING, of_end, of_update)
    stimuli = schema.Stimuli(kind=kind[order], at=at[order], graph=of_graph[order])
    of_run = np.full(len(runs), MISSING, np.int64)
    of_run[ended] = position[graphs:]

    cause = _stimulus_of(limits, schedule, of_run, position)
    given = np.flatnonzero(cause != MISSING)
    start = np.where(limits.opener[given] != MISSING, _QUEUED, _WAITING)
    finish = np.where(runs.outcome[ended] == RunOutcome.SUCCEEDED, _MEMORY, _RELEASED)
    rows: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {
        "at": (schedule.reported[ended], schedule.assigned[given]),
        "task": (runs.task[ended], runs.task[given]),
        "start": (np.full(len(ended), _PROCESSING), start),
        "finish": (finish, np.full(len(given), _PROCESSING)),
        "worker": (schedule.worker[ended], schedule.worker[given]),
        "stimulus": (of_run[ended], cause[given]),
    }
    table = schema.Transitions(**{name: np.concatenate(pair) for name, pair in rows.items()})
    # Of two transitions at one instant, a run's end comes before what it causes.
    return stimuli, table.take(np.argsort(table.at, kind="stable"))


def _stimulus_of(limits: Constraints, schedule: Schedule, of_run: Int64, position: Int64) -> Int64:
    """By run: stimulus of the last event that it waited for."""
    cause = np.full(len(schedule.assigned), MISSING, np.int64)
    graph = np.flatnonzero(limits.graph != MISSING)
    latest = np.full(len(cause), MISSING, np.int64)
    cause[graph] = position[limits.graph[graph]]
    latest[graph] = schedule.received[limits.graph[graph]]
    opened = np.flatnonzero(schedule.opener != MISSING)
    source = np.concatenate([limits.source, schedule.opener[opened]])
    target = np.concatenate([limits.target, opened])
    known = schedule.reported[source] != MISSING
    source, target = source[known], target[known]
    np.maximum.at(latest, target, schedule.reported[source])
    last = schedule.reported[source] == latest[target]
    cause[target[last]] = of_run[source[last]]
    return cause


def _transfers(
    trace: RunTrace, received: Int64, schedule: Schedule, moved: RunTransfers, factor: float
) -> schema.Transfers:
    """Shift transfers with the runs that needed them; none are left where transfers take no time."""
    if not factor:
        return schema.Transfers.empty()
    transfers, run = trace.transfers, moved.run
    known = run != MISSING
    base = np.where(known, trace.runs.received[run], 0)
    base = np.where(known & moved.any[run], np.maximum(moved.first_start[run], base), base)
    shift = np.where(known, received[run] - trace.runs.received[run], 0)

    def at(column: Int64) -> Int64:
        moved = np.where(column > base, base + scaled(column - base, factor), column)
        return np.where(column == MISSING, MISSING, moved + shift)

    receiver = np.where(known, schedule.worker[run], transfers.receiver)
    instants: dict[str, Any] = {name: at(getattr(transfers, name)) for name in ("queued", "start", "stop")}
    again = replace(transfers, receiver=receiver, **instants)
    return again.take(np.argsort(again.stop, kind="stable"))


def _client_anchors(trace: RunTrace, schedule: Schedule) -> dict[int, tuple[Int64, Int64]]:
    """By client: instants of its graphs and of the results that it wanted, as recorded and as replayed."""
    runs, tasks, graphs = trace.runs, trace.tasks, trace.graphs
    graph = values_at(tasks.graph, runs.task)
    known = (graph != MISSING) & (runs.reported != MISSING) & (schedule.reported != MISSING)
    rows = np.flatnonzero(known & tasks.wanted[runs.task])
    client = np.concatenate([graphs.client[graph[rows]], graphs.client])
    before = np.concatenate([runs.reported[rows], graphs.received])
    after = np.concatenate([schedule.reported[rows], schedule.received])
    order = np.lexsort((before, client))
    client, before, after = client[order], before[order], after[order]
    by_client = {int(name): client == name for name in np.unique(client)}
    return {name: (before[own], np.maximum.accumulate(after[own])) for name, own in by_client.items()}


def _moved(anchors: Mapping[int, tuple[Int64, Int64]], client: Int32, at: Int64) -> Int64:
    moved = at.copy()
    for name, (before, after) in anchors.items():
        mine = np.flatnonzero((client == name) & (at != MISSING))
        # An instant before the client's first graph moves by as much as that graph.
        row = np.maximum(np.searchsorted(before, at[mine], side="right") - 1, 0)
        moved[mine] = at[mine] - before[row] + after[row]
    return moved


def replay(trace: RunTrace, changed: Changes = UNCHANGED, causes: RunCauses | None = None) -> RunTrace:
    """Replay a recorded trace with changes; without any, at its recorded times. ``causes`` saves finding them again.

    Computing times and all other recorded delays are kept. The start of a task is computed again: from its inputs, the
    slots of its worker, and the scheduler's queue. Tasks stay on their workers, except those that waited in the
    scheduler's queue, which go to whichever worker has room first. A task that waited for tasks that it submitted
    itself takes as long as it did. A faster part can make the whole run slower, in a replay as on a cluster: tasks
    become ready in another order, and a long task may get its slot late (Graham's anomalies). The metric series and the
    times in which event loops were blocked do not follow from the changes, and are left out.
    """
    if not len(trace.runs):
        return trace
    causes = causes or RunCauses(trace)
    inputs = causes.inputs(trace)
    transfers = run_transfers(trace, inputs)
    times = durations(trace, causes, transfers, changed)
    limits = constraints(trace, causes, inputs)
    limits = replace(limits, lag=scaled(limits.lag, changed.part("scheduler")))
    recorded = task_times(trace)
    changed_times = repaired(recorded, [i for i, worker in enumerate(trace.workers) if worker.name in changed.repaired])
    schedule = VirtualCluster(trace, times, limits, recorded, changed_times).run()
    again = _rebuild(trace, times, limits, transfers, schedule, changed)
    return replace(again, name=f"{trace.name} (replayed)")
