import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.topology import (
    ETHERNET_PAYLOAD,
    Cable,
    ConstantNetwork,
    Host,
    InstantNetwork,
    Topology,
    TopologyError,
    network_from_dict,
    network_to_dict,
)
from tests.simulation.topologies import MBIT, arrivals, topologies

GBIT = 1000 * MBIT


def two_rooms(trunk: float = 100 * MBIT, **changed: Any) -> Topology:
    """Two hosts on each of two switches, with 1 Gbit to each and a slower link between the switches."""
    links = tuple(Cable((f"{room}{i}", f"sw-{room}"), GBIT, 50e-6) for room in "ab" for i in (1, 2))
    made: dict[str, Any] = {
        "hosts": tuple(Host(f"{room}{i}") for room in "ab" for i in (1, 2)),
        "switches": ("sw-a", "sw-b"),
        "links": (*links, Cable(("sw-a", "sw-b"), trunk, 100e-6)),
        "payload": 1.0,
    }
    return Topology(**(made | changed))


PAIR = (Host("a1"), Host("a2"))
#: Hosts pass nothing on.
CHAIN = (Cable(("a1", "a2"), GBIT), Cable(("a2", "c"), GBIT))

#: Transfers of some bytes between hosts, all at once, and their arrivals in seconds.
ARRIVALS: dict[str, tuple[Topology, list[tuple[str, str, int]], list[float]]] = {
    # 1.25 MB over 1 Gbit: 10 ms, and 2 x 50 us; over 100 Mbit: 100 ms, and 2 x 50 us + 100 us.
    "latencies and the slowest link": (two_rooms(), [("a1", "a2", 1_250_000)], [0.0101]),
    "a slower link": (two_rooms(), [("a1", "b2", 1_250_000)], [0.1002]),
    # Two over the trunk have 50 of 100 Mbit each. Meanwhile a1 -> a2 has the rest of a1, 950 Mbit; and for the 100 us
    # that the others' first bytes are under way longer, all of 1 Gbit: 5 % more.
    "shared links": (
        two_rooms(),
        [("a1", "b1", 625_000), ("a2", "b2", 625_000), ("a1", "a2", 1_187_500)],
        [0.1002, 0.1002, 0.0101 - 100e-6 * 0.05 / 0.95],
    ),
    "the two directions": (two_rooms(), [("a1", "b1", 1_250_000), ("b1", "a1", 1_250_000)], [0.1002, 0.1002]),
    "another bandwidth back": (
        Topology(PAIR, (), (Cable(("a1", "a2"), 100 * MBIT, bandwidth_back=10 * MBIT),), payload=1.0),
        [("a1", "a2", 125_000), ("a2", "a1", 125_000)],
        [0.01, 0.1],
    ),
    "headers": (two_rooms(payload=ETHERNET_PAYLOAD), [("a1", "b1", 12_500_000)], [1538 / 1448 + 200e-6]),
    "a loopback": (
        two_rooms(hosts=(Host("a1", loopback=1e6), *map(Host, ("a2", "b1", "b2")))),
        [("a1", "a1", 10**6), ("a1", "a1", 10**6), ("a2", "a2", 10**9)],
        [2.0, 2.0, 0.0],
    ),
}


@pytest.mark.parametrize(("topology", "transfers", "ends"), ARRIVALS.values(), ids=ARRIVALS)
def test_bytes_arrive_as_worked_out_by_hand(
    topology: Topology, transfers: list[tuple[str, str, int]], ends: list[float]
) -> None:
    assert arrivals(topology, [(0.0, *transfer) for transfer in transfers]) == pytest.approx(ends, abs=1e-7)


def test_a_host_is_known_by_its_address_too() -> None:
    hosts = (Host("a1", address="10.0.0.1"), *(Host(name) for name in ("a2", "b1", "b2")))
    topology = two_rooms(hosts=hosts)
    assert arrivals(topology, [(0.0, "10.0.0.1", "b1", 1_250_000)]) == pytest.approx([0.1002], abs=1e-8)
    with pytest.raises(KeyError, match="no host 'elsewhere'"):
        topology.model(EventHeap()).transfer("elsewhere", "a1", 1, lambda: None)


def test_a_route_has_the_fewest_links_then_the_smallest_latency_then_the_first() -> None:
    hosts = (Host("a"), Host("b"))
    ends = [("a", "s"), ("s", "t"), ("s", "t"), ("s", "t"), ("t", "b"), ("s", "u"), ("u", "t")]
    latencies = [0.0, 3e-3, 1e-3, 1e-3, 0.0, 0.0, 0.0]
    links = tuple(Cable(end, GBIT, latency) for end, latency in zip(ends, latencies, strict=True))
    topology = Topology(hosts, ("s", "t", "u"), links)
    assert topology.route("a", "b").links == ((0, True), (2, True), (4, True))
    assert topology.route("b", "a").links == ((4, False), (2, False), (0, False))
    assert topology.route("a", "b").latency_seconds == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"hosts": ()}, "at least one host"),
        ({"hosts": (Host("a1"), Host("a1"))}, "a1: the names of hosts and switches must be unique"),
        ({"hosts": (Host("sw-a"),)}, "sw-a: the names of hosts and switches must be unique"),
        ({"hosts": (Host("a1", slots=-1),)}, "a1: slots of at least 0, got -1"),
        ({"hosts": (Host("a1", nthreads=0),)}, "a1: nthreads of at least 1, got 0"),
        ({"hosts": (Host("a1", speed=0.0),)}, "a1: expected a speed above 0, got 0.0"),
        ({"hosts": (Host("a1", loopback=-1.0),)}, "a1: expected a loopback above 0, got -1.0"),
        ({"links": (Cable(("a1", "nowhere"), GBIT),)}, "a1 - nowhere: 'nowhere' is neither a host nor a switch"),
        ({"links": (Cable(("a1", "a1"), GBIT),)}, "a1 - a1: a link has two different ends"),
        ({"links": (Cable(("a1", "sw-a"), -GBIT),)}, "a1 - sw-a: expected a bandwidth above 0"),
        ({"links": (Cable(("a1", "sw-a"), GBIT, bandwidth_back=0.0),)}, "a1 - sw-a: expected a bandwidth_back above 0"),
        ({"links": (Cable(("a1", "sw-a"), GBIT, -1.0),)}, "a1 - sw-a: expected a latency of at least 0 s, got -1.0"),
        ({"links": (Cable(("a1", "sw-a"), GBIT, queue_seconds=-1.0),)}, "a1 - sw-a: expected a queue of at least 0 s"),
        ({"links": (Cable(("a1", "sw-a"), GBIT),)}, "a2: no links lead from here to 'a1'"),
        ({"switches": (), "hosts": (*PAIR, Host("c")), "links": CHAIN}, "c: no links lead from here to 'a1'"),
        ({"payload": 1.5}, "payload: expected a part above 0 and at most 1, got 1.5"),
    ],
)
def test_an_impossible_topology_is_refused_by_name(changed: dict[str, Any], wrong: str) -> None:
    with pytest.raises(TopologyError) as caught:
        two_rooms(**changed)
    assert wrong in str(caught.value)


@given(topologies() | st.sampled_from([InstantNetwork(), ConstantNetwork(1e8, 1e-3)]))
@settings(max_examples=30)
def test_a_network_travels_as_json(network: Topology) -> None:
    assert network_from_dict(json.loads(json.dumps(network_to_dict(network)))) == network


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: network_from_dict({"kind": "ether"}), "expected the kind of a network.*'topology'.*got 'ether'"),
        *((partial(ConstantNetwork, wrong), "a bandwidth above 0") for wrong in (0.0, -1.0, nan, inf)),
        (lambda: ConstantNetwork(1e8, -1), "a latency of at least 0 s, got -1"),
    ],
)
def test_an_impossible_plain_network_is_refused(make: Callable[[], Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        make()


@given(topologies(), st.data())
@settings(max_examples=30)
def test_every_transfer_arrives_and_no_sooner_than_alone(topology: Topology, data: st.DataObject) -> None:
    names = st.sampled_from([host.name for host in topology.hosts])
    some = st.tuples(st.floats(0, 10), names, names, st.integers(0, 10**8))
    transfers = data.draw(st.lists(some, max_size=8))
    ends = arrivals(topology, transfers)
    for transfer, end in zip(transfers, ends, strict=True):
        [alone] = arrivals(topology, [transfer])
        assert end >= alone - 1e-8 - 1e-9 * alone


def test_a_small_message_waits_in_the_queue_of_a_full_link() -> None:
    *others, trunk = two_rooms().links
    topology = two_rooms(links=(*others, replace(trunk, queue_seconds=20e-3)))
    clock = EventHeap()
    model = topology.model(clock)
    alone = model.delay("a1", "b1")
    delays = {}
    model.transfer("a1", "b1", 1_250_000, lambda: None)
    clock.at(50_000_000, lambda: delays.update({pair: model.delay(*pair) for pair in (("a2", "b2"), ("b2", "a2"))}))
    # 1.25 MB take 100 ms over the trunk: at 90 ms, what is left is sent within 10.2 ms, as 0.2 ms are latency.
    clock.at(90_000_000, lambda: delays.update(late=model.delay("a2", "b2")))
    clock.run()
    assert alone == 200_000
    assert delays["a2", "b2"] == 200_000 + 20_000_000
    assert delays["b2", "a2"] == 200_000
    assert delays["late"] == pytest.approx(200_000 + 10_200_000, abs=10)
    assert model.delay("a2", "b2") == 200_000
