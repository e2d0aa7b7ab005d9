"""Picture of a topology as text: a tree of switches and hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.show.figures import format_count
from dask_efficiency.simulation.model.cluster_file import abbreviate_names
from dask_efficiency.simulation.model.topology import Host, Topology
from dask_efficiency.simulation.model.units import shown_bandwidth, shown_seconds

#: Prefix of a branch, of the last one, and of the lines below either.
_BRANCHES = ("├─ ", "└─ ", "│  ", "   ")

#: Columns of a line: the names, their link, and a description.
_Row = tuple[str, str, str]


def draw_topology(topology: Topology, workers: Iterable[WorkerSpec] = (), scheduler_host: str = "") -> str:
    """Draw a topology from its central switch; equal consecutive hosts share a line, odd ones of a room are marked."""
    tree = _Tree(topology, workers, scheduler_host)
    rows = [(tree.root, "", tree.description([tree.root])), *_rows(tree, tree.root, "")]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [f"{label:<{widths[0]}}  {link:<{widths[1]}}  {text}".rstrip() for label, link, text in rows]
    return "\n".join([*lines, *tree.other_links()])


def _rows(tree: _Tree, name: str, indent: str) -> Iterator[_Row]:
    """Make the lines below a switch, hosts first."""
    groups = tree.groups(name)
    for i, names in enumerate(groups):
        last = i == len(groups) - 1
        yield indent + _BRANCHES[last] + abbreviate_names(names), tree.link_of(names[0]), tree.description(names)
        yield from _rows(tree, names[0], indent + _BRANCHES[2 + last])


class _Tree:
    """Tree of hosts and switches, with the link of each towards the root."""

    def __init__(self, topology: Topology, workers: Iterable[WorkerSpec], scheduler_host: str) -> None:
        self._topology = topology
        self._hosts = {host.name: host for host in topology.hosts}
        self._workers = Counter(topology.known_host(worker.host).name for worker in workers)
        self._scheduler = topology.known_host(scheduler_host).name if scheduler_host else ""
        self.root = _middle(topology)
        #: By name: position of its link, and its parent.
        self._up: dict[str, tuple[int, str]] = {}
        self._below: dict[str, list[str]] = {self.root: []}
        for name, i, parent in _reached(topology, self.root):
            self._up[name] = i, parent
            self._below[parent].append(name)
            self._below[name] = []
        self._odd = _odd_hosts(topology, {name: parent for name, (_, parent) in self._up.items()})

    def groups(self, name: str) -> list[list[str]]:
        below = self._below[name]
        alike = [list(names) for _, names in groupby((place for place in self._hosts if place in below), self._look)]
        return alike + [[place] for place in below if place not in self._hosts]

    def _look(self, name: str) -> tuple[Host, str, str]:
        return replace(self._hosts[name], name="", address=""), self.link_of(name), self.description([name])

    def link_of(self, name: str) -> str:
        i, _ = self._up[name]
        link = self._topology.links[i]
        up, down = (link.bandwidth, link.back) if link.ends[0] == name else (link.back, link.bandwidth)
        rate = shown_bandwidth(up)
        if up != down:
            rate = f"{rate} up, {shown_bandwidth(down)} down"
        return f"{rate}, {shown_seconds(link.latency_seconds)}" if link.latency_seconds else rate

    def description(self, names: list[str]) -> str:
        """Describe equal hosts; empty for a switch."""
        host = self._hosts.get(names[0])
        if host is None:
            return ""
        slots = _count_or_no(host.slots, "slot")
        if self._workers:
            slots = f"{slots}, {_count_or_no(self._workers[host.name], 'worker')}"
        parts = [slots + " each" * (len(names) > 1)]
        if host.speed != 1.0:
            parts.append(f"{host.speed:g} times as fast")
        if host.name == self._scheduler:
            parts.append("scheduler")
        if host.name in self._odd:
            parts.append(f"<- the rest of room {host.room} is at {self._odd[host.name]}")
        return "; ".join(parts)

    def other_links(self) -> list[str]:
        used = {i for i, _ in self._up.values()}
        others = [link for i, link in enumerate(self._topology.links) if i not in used]
        return [
            f"also {link.name}: {shown_bandwidth(link.bandwidth)}"
            + (f", {shown_bandwidth(link.back)} back" if link.back != link.bandwidth else "")
            for link in others
        ]


def _count_or_no(count: int, word: str) -> str:
    return format_count(count, word) if count else f"no {word}s"


def _reached(topology: Topology, root: str) -> Iterator[tuple[str, int, str]]:
    """Yield all reachable hosts and switches in order of distance: name, link towards the root, and parent."""
    seen, names = {root}, [root]
    switches = {*topology.switches, root}
    for name in names:
        if name not in switches:
            continue  # hosts pass nothing on
        for other, i, _ in topology.neighbours[name]:
            if other not in seen:
                seen.add(other)
                names.append(other)
                yield other, i, name


def _middle(topology: Topology) -> str:
    """Find the switch from which the farthest host is nearest; the first such one."""
    hosts = {host.name for host in topology.hosts}

    def distance(switch: str) -> int:
        hops = {switch: 0}
        for name, _, parent in _reached(topology, switch):
            hops[name] = hops[parent] + 1
        return max(hops.get(host, len(hops)) for host in hosts)

    return min(topology.switches, key=distance) if topology.switches else topology.hosts[0].name


def _odd_hosts(topology: Topology, parents: dict[str, str]) -> dict[str, str]:
    """Find hosts on another switch than more than half of their room; returns that switch for each."""
    rooms: dict[str, Counter[str]] = {}
    for host in topology.hosts:
        if host.room and host.name in parents:
            rooms.setdefault(host.room, Counter())[parents[host.name]] += 1
    most = {room: (*counts.most_common(1)[0], counts.total()) for room, counts in rooms.items()}
    usual = {room: switch for room, (switch, count, total) in most.items() if 2 * count > total}
    odd = {host.name: usual[host.room] for host in topology.hosts if host.room in usual and host.name in parents}
    return {name: switch for name, switch in odd.items() if switch != parents[name]}
