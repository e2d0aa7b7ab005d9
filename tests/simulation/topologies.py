"""Topologies and transfers that several test files share."""

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.topology import Cable, Host, Topology

MBIT = 125_000.0

#: When it begins in seconds, from which host to which, and its bytes.
Transfer = tuple[float, str, str, int]

bandwidths = st.sampled_from([1e6, 1e7, 1.25e8]) | st.floats(1.0, 1e9)
latencies = st.just(0.0) | st.floats(0.0, 0.1)


def star(hosts: Sequence[Host | str], bandwidth: float, **settings: float) -> Topology:
    made = tuple(Host(host) if isinstance(host, str) else host for host in hosts)
    return Topology(made, ("top",), tuple(Cable((host.name, "top"), bandwidth) for host in made), **settings)


@st.composite
def topologies(draw: st.DrawFn, max_hosts: int = 6) -> Topology:
    """Switches in a random tree with a few more links, and hosts at them."""
    switches = tuple(f"s{i}" for i in range(draw(st.integers(1, 4))))
    hosts = tuple(
        Host(
            f"h{i}",
            *(draw(st.integers(0, 8)), draw(st.integers(1, 4)), draw(st.integers(0, 2**40))),
            address=draw(st.sampled_from(["", f"10.0.0.{i}"])),
            speed=draw(st.floats(0.1, 10.0)),
            loopback=draw(st.none() | bandwidths),
            room=draw(st.sampled_from(["", "A", "B"])),
        )
        for i in range(draw(st.integers(1, max_hosts)))
    )
    links = [Cable((s, switches[draw(st.integers(0, i))]), draw(bandwidths)) for i, s in enumerate(switches[1:])]
    links += [
        Cable(
            (host.name, draw(st.sampled_from(switches))),
            draw(bandwidths),
            draw(latencies),
            draw(st.none() | bandwidths),
        )
        for host in hosts
    ]
    pairs = st.lists(st.sampled_from(switches), min_size=2, max_size=2, unique=True)
    for one, other in draw(st.lists(pairs, max_size=2)) if len(switches) > 1 else ():
        links.append(Cable((one, other), draw(bandwidths), draw(latencies)))
    return Topology(hosts, switches, tuple(links), payload=draw(st.floats(0.1, 1.0)))


def random_topology(seed: int, *, hosts: int = 10, latency: bool = True) -> Topology:
    """Four switches and some hosts, with bandwidths and latencies by chance."""
    chance = random.Random(seed)
    switches = tuple(f"s{i}" for i in range(4))
    ends = [(switches[i], switches[chance.randrange(i)]) for i in range(1, 4)]
    ends += [(f"h{i}", chance.choice(switches)) for i in range(hosts)]
    links = tuple(
        Cable(end, chance.uniform(1e6, 1e8), chance.uniform(0, 1e-3) * latency, chance.uniform(1e6, 1e8))
        for end in ends
    )
    return Topology(tuple(Host(f"h{i}") for i in range(hosts)), switches, links, payload=1.0)


def random_transfers(seed: int, topology: Topology, count: int, *, seconds: float) -> list[Transfer]:
    chance = random.Random(seed)
    names = [host.name for host in topology.hosts]
    return [
        (chance.uniform(0, seconds), *chance.sample(names, 2), chance.randrange(1, 10_000_000)) for _ in range(count)
    ]


def arrivals(topology: Topology, transfers: Sequence[Transfer]) -> list[float]:
    """When each transfer's last byte is there, in seconds."""
    clock, ends = EventHeap(), [float("nan")] * len(transfers)
    model = topology.model(clock)
    for i, (at, *transfer) in enumerate(transfers):
        arrived = lambda i=i: ends.__setitem__(i, clock.now / 1e9)  # noqa: E731
        clock.at(round(1e9 * at), model.transfer, *transfer, arrived)
    clock.run()
    return ends
