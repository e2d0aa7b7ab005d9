"""Networks, which move bytes from one host to another in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.topology import Topology

#: Called when the last byte is there.
Arrived = Callable[[], object]


class NetworkModel(Protocol):
    """Network at work, in the virtual time of one simulation."""

    def transfer(self, source: str, destination: str, nbytes: int, arrived: Arrived) -> None:
        """Send bytes from one host to another."""

    def delay(self, source: str, destination: str) -> int:
        """Nanoseconds that a small message takes in addition to the recorded ones."""
        ...


class NetworkSpec(Protocol):
    """Description of a network: an immutable value."""

    def model(self, clock: EventHeap) -> NetworkModel:
        """Make the network at work."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain data, with the ``kind`` of the network."""
        ...


@dataclass(frozen=True, slots=True)
class InstantNetwork:
    """Network on which bytes take no time."""

    def model(self, clock: EventHeap) -> NetworkModel:  # noqa: D102  # as the protocol says
        return _UnsharedNetwork(clock, 0.0, 0)

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": "instant"}


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

    def model(self, clock: EventHeap) -> NetworkModel:  # noqa: D102
        return _UnsharedNetwork(clock, 1e9 / self.bandwidth, round(1e9 * self.latency_seconds))

    def to_dict(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": "constant", "bandwidth": self.bandwidth, "latency_seconds": self.latency_seconds}


class _UnsharedNetwork:
    def __init__(self, clock: EventHeap, ns_a_byte: float, latency: int) -> None:
        self._clock, self._ns_a_byte, self._latency = clock, ns_a_byte, latency

    def transfer(self, source: str, destination: str, nbytes: int, arrived: Arrived) -> None:
        self._clock.at(self._clock.now + self._latency + round(nbytes * self._ns_a_byte), arrived)

    def delay(self, source: str, destination: str) -> int:
        return 0


#: By kind: reads a description of :meth:`NetworkSpec.to_dict`.
_READ: dict[str, Callable[..., NetworkSpec]] = {
    "instant": InstantNetwork,
    "constant": ConstantNetwork,
    "topology": Topology.from_parts,
}


def network_from_dict(described: dict[str, Any]) -> NetworkSpec:
    """Read a description of :meth:`NetworkSpec.to_dict`."""
    given = dict(described)
    kind = given.pop("kind", None)
    if kind not in _READ:
        raise ValueError(f"expected the kind of a network, of {sorted(_READ)}, got {kind!r}")
    return _READ[kind](**given)
