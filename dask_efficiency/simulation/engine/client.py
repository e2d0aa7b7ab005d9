"""VirtualClients: what the clients of a recorded run did, done again as results come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dask_efficiency.simulation.engine.costs import Costs
from dask_efficiency.simulation.engine.messages import Loop
from dask_efficiency.simulation.engine.scheduler import VirtualScheduler
from dask_efficiency.simulation.engine.workload import Graph, Release, Workload
from dask_efficiency.simulation.model.events import EventHeap


class VirtualClients:
    """Sends graphs and lets go of results, after as many results as the recorded clients had heard of.

    Parameters
    ----------
    loop
        The scheduler's event loop.
    costs
        What it takes for a graph.
    addresses
        By recorded address: the simulated one.
    """

    def __init__(
        self,
        clock: EventHeap,
        scheduler: VirtualScheduler,
        loop: Loop,
        workload: Workload,
        costs: Costs,
        addresses: Mapping[str, str],
    ) -> None:
        self._clock, self._scheduler, self._loop, self._workload = clock, scheduler, loop, workload
        self._costs = costs
        self._annotations = workload.annotations(addresses)
        #: By a key that a client still waits for: what it lets go of after it.
        self._late: dict[Any, list[Release]] = {}
        #: By client: how many of the results that it wants are there, and what happens after how many.
        self._heard: Counter[str] = Counter()
        self._graphs: dict[tuple[str, int], list[Graph]] = {}
        self._releases: dict[tuple[str, int], list[Release]] = {}
        #: Keys that were asked for and are not there yet, and who asked; the run ends when nothing is left of both.
        self.wanted: dict[Any, list[str]] = {}
        self.graphs_left = len(workload.graphs)
        for client in {
            *(graph.client for graph in workload.graphs),
            *(release.client for release in workload.releases),
        }:
            scheduler.add_virtual_client(client, clock)

    def start(self) -> None:
        """Send what waits for nothing."""
        for graph in self._workload.graphs:
            if graph.after:
                self._graphs.setdefault((graph.client, graph.after), []).append(graph)
            else:
                self._clock.at(self._clock.now + graph.received, self._receive, graph)
        for release in self._workload.releases:
            if release.after:
                self._releases.setdefault((release.client, release.after), []).append(release)
            else:
                self._clock.at(self._clock.now + release.delay, self._release, release)

    @property
    def done(self) -> bool:
        """Whether every graph was sent and every result that was asked for is there."""
        return not self.graphs_left and not self.wanted

    def hear(self, key: Any) -> None:
        """A result is there, or failed for good."""
        for client in self.wanted.pop(key, ()):
            self._heard[client] += 1
            place = client, self._heard[client]
            for graph in self._graphs.pop(place, ()):
                self._clock.at(self._clock.now + graph.thinking, self._receive, graph)
            for release in self._releases.pop(place, ()):
                self._clock.at(self._clock.now + release.delay, self._release, release)
        for release in self._late.pop(key, ()):
            self._clock.at(self._clock.now, self._release, release)

    def _receive(self, graph: Graph) -> None:
        self._loop.do(self._costs.taking_in(graph.taking_in), self._take_in, graph, self._clock.now)

    def _take_in(self, graph: Graph, received: int) -> None:
        scheduler, workload, keys = self._scheduler, self._workload, self._workload.keys
        self.graphs_left -= 1
        members = self._with_what_is_missing(graph.tasks)
        dsk: dict[Any, Any] = {keys[task]: workload.spec(task) for task in members}
        wanted = {keys[task] for task in graph.wanted}
        for key in wanted:
            self.wanted.setdefault(key, []).append(graph.client)
        stimulus = f"update-graph-{received / 1e9:.9f}"
        # Its number of the graph is the recorded one.
        scheduler.generation, scheduler._last_time = graph.generation - 1, 0.0
        tasks, priority = workload.trace.tasks, {}
        user: dict[Any, int] = {}
        for task in members:
            priority[keys[task]] = int(tasks.priority_order[task])
            if tasks.priority_user[task]:
                user[keys[task]] = -int(tasks.priority_user[task])
        scheduler._create_taskstate_from_graph(
            start=self._clock.now / 1e9,
            dsk=dsk,
            keys=set(wanted),
            ordered=priority,
            client=graph.client,
            annotations_by_type={
                name: {key: value for key, value in values.items() if key in dsk}
                for name, values in self._annotations.items()
            },
            global_annotations=None,
            stimulus_id=stimulus,
            submitting_task=None,
            span_metadata={"collections": []},
            user_priority=user,
            fifo_timeout=0.0,
        )
        self._loop.spend(self._costs.settling(graph.number))
        for key in wanted:
            if scheduler.tasks[key].state == "memory":
                self.hear(key)

    def _with_what_is_missing(self, tasks: list[int]) -> dict[int, None]:
        """Tasks, and what they need that the scheduler has let go of."""
        workload, known = self._workload, self._scheduler.tasks
        found, look = dict.fromkeys(tasks), list(tasks)
        while look:
            for needed in workload.dependencies(look.pop()):
                ts = known.get(workload.keys[needed])
                if needed not in found and (ts is None or ts.state == "released"):
                    found[needed] = None
                    look.append(needed)
        return found

    def _release(self, release: Release) -> None:
        keys = [self._workload.keys[task] for task in release.tasks]
        # It cannot let go of what it still waits for.
        early = next((key for key in keys if key in self.wanted), None)
        if early is not None:
            self._late.setdefault(early, []).append(release)
            return
        self._scheduler.client_releases_keys(keys=keys, client=release.client)
