"""Workload: the graphs of a trace as Dask takes them in, and the releases of its clients."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.typing import Key

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.clients import heard_by_clients
from dask_efficiency.runs.trace.run_causes import RunCauses, constraints
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import STATES
from dask_efficiency.simulation.model.calibration import failures
from dask_efficiency.simulation.model.requirements import data_before

_RELEASED = STATES.index("released")

#: By constraint of a task in a trace: the annotation from which a scheduler reads it.
_ANNOTATIONS = {
    "restrictions": "workers",
    "loose_restrictions": "allow_other_workers",
    "resources": "resources",
    "retries": "retries",
}


def parse_key(text: str) -> Key:
    """Parse a task's key from its text: a tuple if it was one, so that Dask finds the same groups."""
    if text.startswith("("):
        try:
            key = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text
        if isinstance(key, tuple) and str(key) == text:
            return key
    return text


def dependencies(trace: RunTrace, task: int) -> list[int]:
    """List the numbers of a task's dependencies."""
    needed: list[int] = trace.dependencies[trace.dependency_starts[task] : trace.dependency_starts[task + 1]].tolist()
    return needed


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """Definition of a task, as far as a scheduler reads it."""

    dependencies: frozenset[Key]
    data_producer: bool = False
    is_coro: bool = False


_NEEDS_NOTHING = TaskDefinition(frozenset())


@dataclass(slots=True)
class Graph:
    """Graph that a client submits."""

    #: Position in the trace.
    number: int
    client: str
    tasks: list[int]
    #: Numbers of the tasks whose results the client wants.
    wanted: list[int]
    #: Nanoseconds in which the scheduler took it in.
    taking_in: int
    generation: int
    #: Number of results that its client got before sending it, and nanoseconds from the last of them, or the start.
    after: int
    delay: int


@dataclass(slots=True)
class Release:
    """Release of results by a client, some nanoseconds after it got a number of results."""

    client: str
    tasks: list[int]
    after: int
    delay: int


class Workload:
    """Graphs of a trace, and releases of its clients."""

    def __init__(self, trace: RunTrace) -> None:
        self.trace = trace
        self.keys = [parse_key(text) for text in trace.keys]
        self.number = {key: i for i, key in enumerate(self.keys)}
        self.prefixes = [trace.prefixes[i] if i != MISSING else "" for i in trace.tasks.prefix.tolist()]
        self.spans = [trace.spans[i] if i != MISSING else "" for i in trace.tasks.span.tolist()]
        self._tasks = self._members()
        wanted = trace.tasks.wanted.tolist()
        self._wanted = [[task for task in tasks if wanted[task]] for tasks in self._tasks]
        self._clients = [*map(self._client, trace.graphs.client.tolist())]
        self._heard = self._results()
        self.graphs = self._graphs()
        self.releases = self._releases()
        #: Tasks of no graph that did not run: their results were there before the recording.
        self.data = data_before(trace)

    def spec(self, task: int) -> TaskDefinition:
        """Make the definition of a task, as far as a scheduler reads it."""
        needed = dependencies(self.trace, task)
        return TaskDefinition(frozenset(map(self.keys.__getitem__, needed))) if needed else _NEEDS_NOTHING

    def annotations(self, addresses: Mapping[str, str]) -> dict[str, dict[Key, Any]]:
        """Convert constraints to annotations, by annotation and key, with the simulated addresses of recorded ones."""
        annotations: dict[str, dict[Key, Any]] = {}
        for task, constraint in self.trace.constraints.items():
            for name, annotation in _ANNOTATIONS.items():
                if name == "restrictions" and name in constraint:
                    # Workers that are gone are left out; places that are no addresses are hosts.
                    places = (place for place in constraint[name] if place in addresses or "://" not in place)
                    allowed = [addresses.get(place, place) for place in places]
                    if allowed or not constraint.get("loose_restrictions"):
                        annotations.setdefault(annotation, {})[self.keys[task]] = allowed
                elif name in constraint:
                    annotations.setdefault(annotation, {})[self.keys[task]] = constraint[name]
        # A task that failed and then succeeded had retries, recorded or not.
        failed = failures(self.trace)
        for task in np.flatnonzero(failed > 0).tolist():
            retries = annotations.setdefault("retries", {})
            retries[self.keys[task]] = max(retries.get(self.keys[task], 0), int(failed[task]))
        return annotations

    def _results(self) -> dict[str, list[int]]:
        """By client: instants at which it got the results that it wanted, in order."""
        trace, runs = self.trace, self.trace.runs
        heard: dict[int, list[int]] = {}
        rows = np.flatnonzero(heard_by_clients(trace))
        for task, at in zip(runs.task[rows].tolist(), runs.reported[rows].tolist(), strict=True):
            heard.setdefault(task, []).append(at)
        got: dict[str, list[int]] = {}
        for graph, tasks in enumerate(self._wanted):
            received = int(trace.graphs.received[graph])
            for task in tasks:
                later = [at for at in heard.get(task, ()) if at >= received]
                if later or task in heard:  # else it was there already
                    got.setdefault(self._client(int(trace.graphs.client[graph])), []).append(
                        min(later, default=received)
                    )
        return {client: sorted(ats) for client, ats in got.items()}

    def _members(self) -> list[list[int]]:
        """By graph: its tasks, and those that it made run again."""
        transitions, own = self.trace.transitions, self.trace.tasks.graph
        begun = np.flatnonzero((transitions.stimulus != MISSING) & (transitions.start == _RELEASED))
        again = self.trace.stimuli.graph[transitions.stimulus[begun]]
        members: list[dict[int, None]] = [{} for _ in range(len(self.trace.graphs))]
        for tasks, graphs in ((np.arange(len(own)), own), (transitions.task[begun], again)):
            for task, graph in zip(tasks.tolist(), graphs.tolist(), strict=True):
                if graph != MISSING:
                    members[graph][task] = None
        return [list(tasks) for tasks in members]

    def _client(self, number: int) -> str:
        return self.trace.clients[number] if number != MISSING else "client"

    def _graphs(self) -> list[Graph]:
        trace, graphs = self.trace, list[Graph]()
        causes = RunCauses(trace)
        limits = constraints(trace, causes, causes.inputs(trace))
        for i, tasks in enumerate(self._tasks):
            received = int(trace.graphs.received[i])
            # The scheduler's number of a graph is a part of its tasks' priorities.
            own = trace.tasks.priority_graph[trace.tasks.graph == i]
            before = graphs[-1].generation if graphs else 0
            client, run, after = self._clients[i], int(limits.waited_for[i]), 0
            if run != MISSING:
                after = self._heard_by(client, int(trace.runs.reported[run]))
            graph = Graph(
                number=i,
                client=client,
                tasks=tasks,
                wanted=self._wanted[i],
                taking_in=max(int(trace.graphs.taken_in[i]) - received, 0),
                generation=int(own[0]) if len(own) else before + 1,
                after=after,
                delay=max(int(limits.thinking[i]), 0) if after else received - trace.start,
            )
            graphs.append(graph)
        return graphs

    def _heard_by(self, client: str, at: int) -> int:
        """Count the results that a client had got by an instant."""
        return bisect_right(self._heard.get(client, ()), at)

    def _releases(self) -> list[Release]:
        merged: dict[tuple[int, int], Release] = {}
        releases, trace = self.trace.releases, self.trace
        rows = zip(releases.at.tolist(), releases.client.tolist(), releases.task.tolist(), strict=True)
        for at, number, task in rows:
            client = self._client(number)
            release = merged.get((at, number))
            if release is None:
                after = self._heard_by(client, at)
                last = self._heard[client][after - 1] if after else trace.start
                release = merged[at, number] = Release(client, [], after, at - last)
            release.tasks.append(task)
        return list(merged.values())
