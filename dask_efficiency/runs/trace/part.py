"""A part of a trace: what was going on since an instant, and the tasks that it names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Texts
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import Outcome


def since_start(trace: RunTrace) -> RunTrace:
    """Of a longer recording, what was going on at or after ``trace.start``, and the tasks that it names."""
    start = trace.start
    ended = np.max([trace.runs.assigned, trace.runs.ended, trace.runs.reported], axis=0)
    there = (ended >= start) | (trace.runs.outcome == Outcome.RUNNING)
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
        shuffled=replace(shuffled, task=number[shuffled.task]),
        blocked=trace.blocked.take(trace.blocked.stop >= start),
        series=trace.series.take(trace.series.at >= start),
        constraints={int(number[task]): value for task, value in trace.constraints.items() if used[task]},
        profiles=tuple(replace(profile, run=int(run[profile.run])) for profile in trace.profiles if there[profile.run]),
    )


def _less(numbers: NDArray[Any], first: int) -> NDArray[Any]:
    return np.where(numbers < first, MISSING, numbers - first)
