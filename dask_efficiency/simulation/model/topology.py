"""Topology: hosts, switches and the links between them, over which transfers share the bandwidth max-min fairly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from math import isfinite
from typing import Any, Self

from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.max_min import Path, SharedLinks

#: Share of a link's bandwidth for data: 1448 of the 1538 bytes that a full frame takes on Ethernet (preamble, headers
#: of Ethernet, IP and TCP with timestamps, and the gap between frames). A link of 1 Gbit carries 941 Mbit/s.
ETHERNET_PAYLOAD = 1448 / 1538


class TopologyError(ValueError):
    """The topology is invalid.

    Parameters
    ----------
    about
        Name of the wrong host, switch or link.
    wrong
        The mistake.
    """

    def __init__(self, about: str, wrong: str) -> None:
        super().__init__(f"{about}: {wrong}")
        self.about = about
        self.wrong = wrong


@dataclass(frozen=True, slots=True)
class Host:
    """Machine that workers can run on.

    Parameters
    ----------
    name
        Unique among hosts and switches.
    slots
        Most workers that it can run.
    nthreads
        Threads of each of its workers.
    memory
        Bytes, of which each slot has an equal part; 0 is no limit.
    address
        Its name or number on the network, as in traces, if that is not its name.
    speed
        Speed of its workers as a multiple of the median recorded worker's.
    loopback
        Bytes a second between its own workers; None is without limit.
    room
        Its room, for the picture.
    """

    name: str
    slots: int = 1
    nthreads: int = 1
    memory: int = 0
    address: str = ""
    speed: float = 1.0
    loopback: float | None = None
    room: str = ""


@dataclass(frozen=True, slots=True)
class Cable:
    """Link between two hosts or switches; its directions do not share their bandwidth (full duplex).

    Parameters
    ----------
    ends
        Two hosts or switches.
    bandwidth
        Bytes a second from the first to the second, above 0.
    latency_seconds
        Latency of each direction.
    bandwidth_back
        Bytes a second from the second to the first; None for the same.
    queue_seconds
        Longest wait of a message if the link is full: the time in which a switch sends its buffer.
    """

    ends: tuple[str, str]
    bandwidth: float
    latency_seconds: float = 0.0
    bandwidth_back: float | None = None
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
    """Way from one host to another.

    Parameters
    ----------
    links
        Positions of the links, each with True if it is crossed from its first end to its second.
    latency_seconds
        Sum of their latencies.
    """

    links: tuple[tuple[int, bool], ...]
    latency_seconds: float


@dataclass(frozen=True)
class Topology:
    """Network of hosts, switches and links.

    Concurrent transfers share each direction of a link max-min fairly; a transfer's first byte comes after the
    latencies of its links. A route has the fewest links, then the smallest latency, then the first links. Hosts forward
    nothing.

    Parameters
    ----------
    hosts, switches, links
        In any order.
    payload
        Share of a link's bandwidth for data, above 0 and at most 1; the rest is for headers.

    Raises
    ------
    TopologyError
        If names are not unique, a link has an unknown end, a number is out of range, or hosts are not connected.
    """

    hosts: tuple[Host, ...]
    switches: tuple[str, ...]
    links: tuple[Cable, ...]
    payload: float = ETHERNET_PAYLOAD
    _routes: dict[str, dict[str, Route]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_hosts()
        self._check_links()
        self._check_connected()

    # -- what is where -----------------------------------------------------------------------------

    def host(self, name: str) -> Host | None:
        """Look up a host by name or address; None if there is none."""
        return self._by_name.get(name)

    def route(self, source: str, destination: str) -> Route:
        """Find the route between two hosts, by name.

        Raises
        ------
        KeyError
            If one of them is not a host's name.
        """
        if source not in self._routes:
            self._routes[source] = self._routes_from(self._host_called(source))
        return self._routes[source][self._host_called(destination)]

    def _host_called(self, name: str) -> str:
        host = self._by_name.get(name)
        if host is None:
            raise KeyError(f"no host {name!r} in the topology")
        return host.name

    @cached_property
    def _by_name(self) -> dict[str, Host]:
        # A host's name wins over another host's address.
        return {host.address: host for host in self.hosts if host.address} | {host.name: host for host in self.hosts}

    @cached_property
    def neighbours(self) -> dict[str, list[tuple[str, int, bool]]]:
        """By host and switch: neighbours, with the link's position, and True if it is crossed from its first end."""
        found: dict[str, list[tuple[str, int, bool]]] = {name: [] for name in self.switches}
        found |= {host.name: [] for host in self.hosts}
        for i, link in enumerate(self.links):
            first, second = link.ends
            found[first].append((second, i, True))
            found[second].append((first, i, False))
        return found

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

    # -- at work and on the way --------------------------------------------------------------------

    def model(self, clock: EventHeap) -> TopologyModel:
        """Make the network at work."""
        return TopologyModel(self, clock)

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data."""
        return {
            "kind": "topology",
            "hosts": [asdict(host) for host in self.hosts],
            "switches": list(self.switches),
            "links": [asdict(link) | {"ends": list(link.ends)} for link in self.links],
            "payload": self.payload,
        }

    @classmethod
    def from_parts(
        cls,
        hosts: Iterable[Mapping[str, Any]],
        switches: Iterable[str],
        links: Iterable[Mapping[str, Any]],
        payload: float,
    ) -> Self:
        """Read the data of :meth:`to_dict`, without its kind."""
        return cls(
            tuple(Host(**host) for host in hosts),
            tuple(switches),
            tuple(Cable(**{**link, "ends": tuple(link["ends"])}) for link in links),
            payload,
        )

    # -- what must hold ----------------------------------------------------------------------------

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
            _check_above_0(host.name, "speed", host.speed)
            if host.loopback is not None:
                _check_above_0(host.name, "loopback", host.loopback)

    def _check_links(self) -> None:
        known = {*self.switches, *(host.name for host in self.hosts)}
        for link in self.links:
            for end in link.ends:
                if end not in known:
                    raise TopologyError(link.name, f"{end!r} is neither a host nor a switch")
            if link.ends[0] == link.ends[1]:
                raise TopologyError(link.name, "a link has two different ends")
            _check_above_0(link.name, "bandwidth", link.bandwidth)
            _check_above_0(link.name, "bandwidth_back", link.back)
            for quantity, seconds in (("latency", link.latency_seconds), ("queue", link.queue_seconds)):
                if not (isfinite(seconds) and seconds >= 0):
                    raise TopologyError(link.name, f"expected a {quantity} of at least 0 s, got {seconds!r}")

    def _check_connected(self) -> None:
        first = self.hosts[0].name
        reached = self._routes_from(first)
        for host in self.hosts:
            if host.name not in reached:
                raise TopologyError(host.name, f"no links lead from here to {first!r}")


def _check_above_0(about: str, quantity: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise TopologyError(about, f"expected a {quantity} above 0, got {value!r}")


class TopologyModel:
    """Topology at work: transfers share each direction of a link, and each loopback."""

    def __init__(self, topology: Topology, clock: EventHeap) -> None:
        self._topology = topology
        self._clock = clock
        capacities: list[float] = []
        for link in topology.links:
            capacities += [link.bandwidth * topology.payload, link.back * topology.payload]
        self._capacities = capacities
        self._loopbacks: dict[str, Path] = {}
        for host in topology.hosts:
            if host.loopback is not None:
                self._loopbacks[host.name] = (len(capacities),)
                capacities.append(host.loopback)
        self._links = SharedLinks(clock, capacities)
        self._ways: dict[tuple[str, str], tuple[Path, int]] = {}

    def transfer(self, source: str, destination: str, nbytes: int, arrived: Callable[[], object]) -> None:
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
            way = self._ways[source, destination] = self._found(source, destination)
        return way

    def _found(self, source: str, destination: str) -> tuple[Path, int]:
        route = self._topology.route(source, destination)
        if not route.links:
            host = self._topology.host(source)
            return (self._loopbacks.get(host.name, ()) if host else ()), 0
        path = tuple(2 * i + (not forth) for i, forth in route.links)
        return path, round(1e9 * route.latency_seconds)
