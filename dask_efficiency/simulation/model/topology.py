"""Networks, which move bytes in virtual time: plain ones, and topologies of hosts, switches and links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from typing import Any, Self, TypeAlias

from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.max_min import Path, SharedLinks

#: Called when the last byte is there.
Arrived = Callable[[], object]


@dataclass(frozen=True, slots=True)
class InstantNetwork:
    """Network on which bytes take no time."""

    def model(self, clock: EventHeap) -> PlainModel:
        """Make the network at work."""
        return PlainModel(clock, 0.0, 0)


@dataclass(frozen=True, slots=True)
class ConstantNetwork:
    """Network on which every transfer has the same bandwidth, in bytes a second, whatever else is under way."""

    bandwidth: float
    #: From a message's start to its first byte.
    latency_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth < inf:
            raise ValueError(f"expected a bandwidth above 0 bytes a second, got {self.bandwidth!r}")
        if not 0 <= self.latency_seconds < inf:
            raise ValueError(f"expected a latency of at least 0 s, got {self.latency_seconds!r}")

    def model(self, clock: EventHeap) -> PlainModel:
        """Make the network at work."""
        return PlainModel(clock, 1e9 / self.bandwidth, round(1e9 * self.latency_seconds))


class PlainModel:
    """Plain network at work, in the virtual time of one simulation."""

    def __init__(self, clock: EventHeap, ns_a_byte: float, latency: int) -> None:
        self._clock, self._ns_a_byte, self._latency = clock, ns_a_byte, latency

    def transfer(self, source: str, destination: str, nbytes: int, arrived: Arrived) -> None:
        """Send bytes from one host to another."""
        self._clock.at(self._clock.now + self._latency + round(nbytes * self._ns_a_byte), arrived)

    def delay(self, source: str, destination: str) -> int:
        """Nanoseconds that a small message takes in addition to the recorded ones."""
        return 0


#: Share of a link's bandwidth for data: 1448 of the 1538 bytes that a full frame takes on Ethernet (preamble, headers
#: of Ethernet, IP and TCP with timestamps, and the gap between frames). A link of 1 Gbit carries 941 Mbit/s.
ETHERNET_PAYLOAD = 1448 / 1538


class TopologyError(ValueError):
    """The topology is invalid: the host, switch or link that it is about, and the mistake."""

    def __init__(self, about: str, wrong: str) -> None:
        super().__init__(f"{about}: {wrong}")
        self.about = about


@dataclass(frozen=True, slots=True)
class Host:
    """Machine that workers can run on; its name is unique among hosts and switches."""

    name: str
    #: Most workers that it can run, and threads of each.
    slots: int = 1
    nthreads: int = 1
    #: Bytes, of which each slot has an equal part; 0 is no limit.
    memory: int = 0
    #: Its name or number on the network, as in traces, if that is not its name.
    address: str = ""
    #: Speed of its workers as a multiple of the median recorded worker's.
    speed: float = 1.0
    #: Bytes a second between its own workers; None is without limit.
    loopback: float | None = None
    #: For the picture.
    room: str = ""


@dataclass(frozen=True, slots=True)
class Cable:
    """Link between two hosts or switches; its directions do not share their bandwidth (full duplex)."""

    ends: tuple[str, str]
    #: Bytes a second from the first end to the second.
    bandwidth: float
    latency_seconds: float = 0.0
    #: Bytes a second from the second end to the first; None for the same.
    bandwidth_back: float | None = None
    #: Longest wait of a message if the link is full: the time in which a switch sends its buffer.
    queue_seconds: float = 0.0

    @property
    def name(self) -> str:
        """Names of its ends."""
        return " - ".join(self.ends)

    @property
    def back(self) -> float:
        """Bytes a second from the second end to the first."""
        return self.bandwidth if self.bandwidth_back is None else self.bandwidth_back


@dataclass(frozen=True, slots=True)
class Route:
    """Way from one host to another: positions of links, each with True if it is crossed from its first end."""

    links: tuple[tuple[int, bool], ...]
    latency_seconds: float


@dataclass(frozen=True)
class Topology:
    """Network of hosts, switches and links.

    Concurrent transfers share each direction of a link max-min fairly; a transfer's first byte comes after the
    latencies of its links. A route has the fewest links, then the smallest latency, then the first links. Hosts forward
    nothing. The payload is the share of a link's bandwidth for data; the rest is for headers.
    """

    hosts: tuple[Host, ...]
    switches: tuple[str, ...]
    links: tuple[Cable, ...]
    payload: float = ETHERNET_PAYLOAD
    _routes: dict[str, dict[str, Route]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_hosts()
        self._check_links()
        first = self.hosts[0].name
        reached = self._routes_from(first)
        for host in self.hosts:
            if host.name not in reached:
                raise TopologyError(host.name, f"no links lead from here to {first!r}")

    def host(self, name: str) -> Host | None:
        """Look up a host by name or address; None if there is none."""
        return self._by_name.get(name)

    def route(self, source: str, destination: str) -> Route:
        """Find the route between two hosts, by name or address."""
        if source not in self._routes:
            self._routes[source] = self._routes_from(self.known_host(source).name)
        return self._routes[source][self.known_host(destination).name]

    def known_host(self, name: str) -> Host:
        """Look up a host that is there, by name or address."""
        host = self.host(name)
        if host is None:
            raise KeyError(f"no host {name!r} in the topology")
        return host

    @cached_property
    def _by_name(self) -> dict[str, Host]:
        # A host's name wins over another host's address.
        return {host.address: host for host in self.hosts if host.address} | {host.name: host for host in self.hosts}

    @cached_property
    def neighbours(self) -> dict[str, list[tuple[str, int, bool]]]:
        """By host and switch: neighbours, with the link's position, and True if it is crossed from its first end."""
        neighbours: dict[str, list[tuple[str, int, bool]]] = {name: [] for name in self.switches}
        neighbours |= {host.name: [] for host in self.hosts}
        for i, link in enumerate(self.links):
            first, second = link.ends
            neighbours[first].append((second, i, True))
            neighbours[second].append((first, i, False))
        return neighbours

    def _routes_from(self, source: str) -> dict[str, Route]:
        """Find the best routes from a host, by destination."""
        best: dict[str, Route] = {}
        heap: list[tuple[int, float, tuple[tuple[int, bool], ...], str]] = [(0, 0.0, (), source)]
        switches = set(self.switches)
        while heap:
            hops, latency, links, name = heappop(heap)
            if name in best:
                continue
            best[name] = Route(links, latency)
            if name != source and name not in switches:
                continue
            for other, i, forth in self.neighbours[name]:
                if other not in best:
                    further = latency + self.links[i].latency_seconds
                    heappush(heap, (hops + 1, further, (*links, (i, forth)), other))
        return best

    def model(self, clock: EventHeap) -> TopologyModel:
        """Make the network at work."""
        return TopologyModel(self, clock)

    @classmethod
    def from_parts(cls, **given: Any) -> Self:
        """Read the data of :func:`network_to_dict`, without its kind."""
        links = tuple(Cable(**{**link, "ends": tuple(link["ends"])}) for link in given["links"])
        hosts = tuple(Host(**host) for host in given["hosts"])
        return cls(hosts, tuple(given["switches"]), links, given["payload"])

    def _check_hosts(self) -> None:
        if not self.hosts:
            raise TopologyError("hosts", "a topology has at least one host")
        if not 0 < self.payload <= 1:
            raise TopologyError("payload", f"expected a part above 0 and at most 1, got {self.payload!r}")
        seen: set[str] = set()
        for name in (*(host.name for host in self.hosts), *self.switches):
            if not name or name in seen:
                raise TopologyError(name, "the names of hosts and switches must be unique and not empty")
            seen.add(name)
        for host in self.hosts:
            for quantity, least in (("slots", 0), ("nthreads", 1), ("memory", 0)):
                if getattr(host, quantity) < least:
                    raise TopologyError(host.name, f"{quantity} of at least {least}, got {getattr(host, quantity)!r}")
            _check_above_0(host.name, speed=host.speed, loopback=1.0 if host.loopback is None else host.loopback)

    def _check_links(self) -> None:
        known = {*self.switches, *(host.name for host in self.hosts)}
        for link in self.links:
            for end in link.ends:
                if end not in known:
                    raise TopologyError(link.name, f"{end!r} is neither a host nor a switch")
            if link.ends[0] == link.ends[1]:
                raise TopologyError(link.name, "a link has two different ends")
            _check_above_0(link.name, bandwidth=link.bandwidth, bandwidth_back=link.back)
            for quantity, seconds in (("latency", link.latency_seconds), ("queue", link.queue_seconds)):
                if not 0 <= seconds < inf:
                    raise TopologyError(link.name, f"expected a {quantity} of at least 0 s, got {seconds!r}")


def _check_above_0(about: str, **quantities: float) -> None:
    for quantity, value in quantities.items():
        if not 0 < value < inf:
            raise TopologyError(about, f"expected a {quantity} above 0, got {value!r}")


class TopologyModel:
    """Topology at work: transfers share each direction of a link, and each loopback."""

    def __init__(self, topology: Topology, clock: EventHeap) -> None:
        self._topology, self._clock = topology, clock
        capacities: list[float] = []
        for link in topology.links:
            capacities += [link.bandwidth * topology.payload, link.back * topology.payload]
        self._loopbacks: dict[str, Path] = {}
        for host in topology.hosts:
            if host.loopback is not None:
                self._loopbacks[host.name] = (len(capacities),)
                capacities.append(host.loopback)
        self._capacities, self._links = capacities, SharedLinks(clock, capacities)
        self._ways: dict[tuple[str, str], tuple[Path, int]] = {}

    def transfer(self, source: str, destination: str, nbytes: int, arrived: Arrived) -> None:
        """Send bytes from one host to another; both by name or address."""
        path, latency = self._way(source, destination)
        if latency:
            self._clock.at(self._clock.now + latency, self._links.start, path, nbytes, arrived)
        else:
            self._links.start(path, nbytes, arrived)

    def delay(self, source: str, destination: str) -> int:
        """Nanoseconds that a small message takes: latencies, and waits on full links."""
        path, delay = self._way(source, destination)
        links, count = self._topology.links, 2 * len(self._topology.links)
        for i in path:
            if i < count and (queue := links[i // 2].queue_seconds):
                delay += round(1e9 * min(queue, self._links.backlog(i) / self._capacities[i]))
        return delay

    def _way(self, source: str, destination: str) -> tuple[Path, int]:
        """Look up the positions of the capacities that a transfer uses, and its latency in nanoseconds."""
        way = self._ways.get((source, destination))
        if way is None:
            route = self._topology.route(source, destination)
            path = tuple(2 * i + (not forth) for i, forth in route.links)
            if not path:
                path = self._loopbacks.get(self._topology.known_host(source).name, ())
            way = self._ways[source, destination] = path, round(1e9 * route.latency_seconds)
        return way


#: Description of a network: an immutable value.
NetworkSpec: TypeAlias = InstantNetwork | ConstantNetwork | Topology

_KINDS: dict[str, type[NetworkSpec]] = {"instant": InstantNetwork, "constant": ConstantNetwork, "topology": Topology}


def network_to_dict(network: NetworkSpec) -> dict[str, Any]:
    """Describe a network as plain data, with its kind."""
    (kind,) = (kind for kind, of_kind in _KINDS.items() if isinstance(network, of_kind))
    return {"kind": kind, **{name: value for name, value in asdict(network).items() if name != "_routes"}}


def network_from_dict(described: dict[str, Any]) -> NetworkSpec:
    """Read a description of a network, with its kind."""
    given = dict(described)
    kind = given.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"expected the kind of a network, of {sorted(_KINDS)}, got {kind!r}")
    return Topology.from_parts(**given) if kind == "topology" else _KINDS[kind](**given)
