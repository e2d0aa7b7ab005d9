"""Clients of a simulated run: their graphs, releases, scattered data and phases, as in the recorded run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.runs.trace.clients import heard_by_clients
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import Phases
from dask_efficiency.simulation.engine.memory import Result
from dask_efficiency.simulation.engine.worker import ClusterParts
from dask_efficiency.simulation.engine.workload import Graph, Release, dependencies


class VirtualClients:
    """Sends graphs and releases results, each after as many results as the recorded client had by then."""

    def __init__(self, cluster: ClusterParts) -> None:
        self._cluster, self._clock, self._workload = cluster, cluster.clock, cluster.workload
        self._scheduler, self._keys = cluster.scheduler, cluster.workload.keys
        self._annotations = self._workload.annotations(cluster.addresses)
        #: By a key that a client still waits for: the releases that must come after it.
        self._late: dict[Any, list[Release]] = {}
        #: By client: number of wanted results that are there. By client and number: graphs, then releases, that follow.
        self._heard: Counter[str] = Counter()
        self._following: dict[tuple[str, int], list[Graph | Release]] = {}
        #: Wanted keys that are not there yet, with their clients; the run ends when no key and no graph is left.
        self.wanted: dict[Any, list[str]] = {}
        self.graphs_left = len(self._workload.graphs)
        self._sent: list[Graph | Release] = [*self._workload.graphs, *self._workload.releases]
        for client in {sent.client for sent in self._sent}:
            self._scheduler.add_virtual_client(client, self._clock)

    def start(self) -> None:
        """Send the graphs and releases that wait for no result."""
        for sent in self._sent:
            if sent.after:
                self._following.setdefault((sent.client, sent.after), []).append(sent)
            else:
                self._plan(sent)

    def _plan(self, sent: Graph | Release) -> None:
        function: Any = self._receive if isinstance(sent, Graph) else self._release
        self._clock.at(self._clock.now + sent.delay, function, sent)

    @property
    def done(self) -> bool:
        """True if every graph was sent and every wanted result is there."""
        return not self.graphs_left and not self.wanted

    def hear(self, key: Any) -> None:
        """Tell the clients of a result that is there, or failed for good."""
        for client in self.wanted.pop(key, ()):
            self._heard[client] += 1
            for sent in self._following.pop((client, self._heard[client]), ()):
                self._plan(sent)
        for release in self._late.pop(key, ()):
            self._clock.at(self._clock.now, self._release, release)

    def _receive(self, graph: Graph) -> None:
        taking_in = self._cluster.costs.taking_in(graph.taking_in)
        self._cluster.loop.do(taking_in, self._take_in, graph, self._clock.now)

    def _take_in(self, graph: Graph, received: int) -> None:
        scheduler, keys, tasks = self._scheduler, self._keys, self._workload.trace.tasks
        self.graphs_left -= 1
        members = self._with_what_is_missing(graph.tasks)
        dsk: dict[Any, Any] = {keys[task]: self._workload.spec(task) for task in members}
        wanted = {keys[task] for task in graph.wanted}
        for key in wanted:
            self.wanted.setdefault(key, []).append(graph.client)
        # The scheduler gives the graph its recorded number.
        scheduler.generation, scheduler._last_time = graph.generation - 1, 0.0
        scheduler._create_taskstate_from_graph(
            start=self._clock.now / 1e9,
            dsk=dsk,
            keys=set(wanted),
            ordered={keys[task]: int(tasks.priority_order[task]) for task in members},
            client=graph.client,
            annotations_by_type={
                name: {key: value for key, value in values.items() if key in dsk}
                for name, values in self._annotations.items()
            },
            global_annotations=None,
            stimulus_id=f"update-graph-{received / 1e9:.9f}",
            submitting_task=None,
            span_metadata={"collections": []},
            user_priority={keys[i]: -int(tasks.priority_user[i]) for i in members if tasks.priority_user[i]},
            fifo_timeout=0.0,
        )
        self._cluster.loop.spend(self._cluster.costs.settling(graph.number))
        for key in wanted:
            if scheduler.tasks[key].state == "memory":
                self.hear(key)

    def _with_what_is_missing(self, tasks: list[int]) -> dict[int, None]:
        """Add the dependencies of tasks that the scheduler has forgotten or released."""
        known, members, look = self._scheduler.tasks, dict.fromkeys(tasks), list(tasks)
        while look:
            for needed in dependencies(self._workload.trace, look.pop()):
                ts = known.get(self._keys[needed])
                if needed not in members and (ts is None or ts.state == "released"):
                    members[needed] = None
                    look.append(needed)
        return members

    def _release(self, release: Release) -> None:
        keys = [self._keys[task] for task in release.tasks]
        # It cannot release what it still waits for.
        early = next((key for key in keys if key in self.wanted), None)
        if early is not None:
            self._late.setdefault(early, []).append(release)
        else:
            self._scheduler.client_releases_keys(keys=keys, client=release.client)


#: Client that holds the scattered data: no release of it is recorded.
_CLIENT = "data"


class NoWorkerError(RuntimeError):
    """No worker is there to hold results."""


def put_data(cluster: ClusterParts) -> None:
    """Put results from before the recording on the workers that had them, or on others if these are not there."""
    workload, scheduler, addresses = cluster.workload, cluster.scheduler, list(cluster.workers)
    if not workload.data:
        return
    if not addresses:
        raise NoWorkerError(
            f"{len(workload.data)} results were there before the recording, but no worker is there at the start to "
            "have them; expected at least one that does not join later"
        )
    trace, transfers = workload.trace, workload.trace.transfers
    holder = dict(zip(transfers.task.tolist()[::-1], transfers.sender.tolist()[::-1], strict=True))
    held: dict[str, dict[Any, Result]] = {address: {} for address in addresses}
    for place, task in enumerate(workload.data):
        recorded = holder.get(task, MISSING)
        address = cluster.addresses.get(trace.workers[recorded].address, "") if recorded != MISSING else ""
        if address not in held:
            address = addresses[place % len(addresses)]
        held[address][workload.keys[task]] = Result(max(int(trace.tasks.nbytes[task]), 0))
    scheduler.add_virtual_client(_CLIENT, cluster.clock)
    for address, data in held.items():
        if data:
            cluster.workers[address].put(data)
            who_has, nbytes = {key: [address] for key in data}, {key: result.nbytes for key, result in data.items()}
            scheduler.update_data(who_has=who_has, nbytes=nbytes, client=_CLIENT)


def with_phases(simulated: RunTrace, recorded: RunTrace) -> RunTrace:
    """Add the phases of the recorded clients, each as long after the last graph or result, by number, before it."""
    phases, tables = recorded.phases, []
    for number in np.unique(phases.client).tolist():
        name = recorded.clients[number] if number != MISSING else ""
        here = simulated.clients.index(name) if name in simulated.clients else MISSING
        before, after = _instants(recorded, number), _instants(simulated, here)
        own = phases.take(phases.client == number).columns()
        moved = {name: _moved(own[name], before, after) for name in ("start", "stop")}
        tables.append(own | moved | {"client": np.full(len(own["client"]), here, np.int32)})
    if not tables:
        return simulated
    table = Phases(**{name: np.concatenate([columns[name] for columns in tables]) for name in tables[0]})
    table = table.take(np.argsort(table.start, kind="stable"))
    return replace(simulated, phases=table, stop=max(simulated.stop, int(table.stop.max())))


def _instants(trace: RunTrace, client: int) -> tuple[Int64, Int64]:
    """Sort the instants at which a client's graphs were received, and at which its results were there."""
    heard = np.flatnonzero(heard_by_clients(trace))
    graph = trace.tasks.graph[trace.runs.task[heard]]
    known = (graph >= 0) & (graph < len(trace.graphs))
    results = trace.runs.reported[heard[known][trace.graphs.client[graph[known]] == client]]
    return np.sort(trace.graphs.received[trace.graphs.client == client]), np.sort(results)


def _moved(at: Int64, before: tuple[Int64, Int64], after: tuple[Int64, Int64]) -> Int64:
    """Move instants along with the last graph or result before them; those before all of these stay."""
    counts = [min(len(old), len(new)) for old, new in zip(before, after, strict=True)]
    old = np.concatenate([column[:count] for column, count in zip(before, counts, strict=True)])
    new = np.concatenate([column[:count] for column, count in zip(after, counts, strict=True)])
    order = np.argsort(old, kind="stable")
    shifts = np.concatenate([[0], (new - old)[order]])
    moved: Int64 = at + shifts[np.searchsorted(old[order], at, "right")]
    return moved
