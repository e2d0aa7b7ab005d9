import json
import subprocess
from dataclasses import replace
from pathlib import Path as File

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.max_min import Path, SharedLinks, _Lane, _Loads
from dask_efficiency.simulation.model.topology import Topology
from tests.simulation.topologies import Transfer, arrivals, random_topology, random_transfers

#: Debian's package python3-simgrid belongs to this one.
SYSTEM_PYTHON = "/usr/bin/python3"

N_LINKS = 6

capacities = st.lists(st.floats(0.5, 1e9), min_size=N_LINKS, max_size=N_LINKS)
paths = st.lists(st.integers(0, N_LINKS - 1), min_size=1, max_size=4, unique=True).map(tuple)
flows = st.dictionaries(paths, st.integers(1, 5), max_size=12)


def max_min_rates(transfers: dict[Path, int], capacity: list[float]) -> dict[Path, float]:
    loads = _Loads(len(capacity))
    for path, count in transfers.items():
        lane = _Lane(path, 0)
        loads.add(lane)
        loads.count(lane, count)
    return {lane.path: rate for lane, rate in loads.rates(capacity).items()}


def filled_progressively(transfers: dict[Path, int], capacity: list[float]) -> dict[Path, float]:
    """The definition, step by step: all rates grow until a link is full."""
    rates: dict[Path, float] = {}
    while len(rates) < len(transfers):
        growth = []
        for link in range(len(capacity)):
            used = sum(rates[path] * count for path, count in transfers.items() if link in path and path in rates)
            growing = sum(count for path, count in transfers.items() if link in path and path not in rates)
            growth.append((capacity[link] - used) / growing if growing else float("inf"))
        level = min(growth)
        full = [link for link, reached in enumerate(growth) if reached <= level * (1 + 1e-12)]
        rates |= {p: level for p in transfers if p not in rates and any(link in p for link in full)}
    return rates


@settings(max_examples=40)
@given(flows, capacities)
def test_rates_are_those_of_progressive_filling(transfers: dict[Path, int], capacity: list[float]) -> None:
    assert max_min_rates(transfers, capacity) == pytest.approx(filled_progressively(transfers, capacity), rel=1e-6)


def test_a_line_of_links_is_shared_as_in_the_textbook() -> None:
    # Bertsekas and Gallager, figure 6.16, in spirit: one long flow and local ones over links of 1, 2 and 1.
    rates = max_min_rates({(0, 1, 2): 1, (0,): 2, (1,): 1, (2,): 1}, [1.0, 2.0, 1.0])
    assert rates == pytest.approx({(0, 1, 2): 1 / 3, (0,): 1 / 3, (1,): 5 / 3, (2,): 2 / 3})


#: At which nanosecond, over which links, how many bytes.
sent = st.tuples(st.integers(0, 10**9), paths, st.integers(0, 10**7))


def ends_of(transfers: list[tuple[int, Path, int]], capacity: list[float]) -> list[int]:
    clock = EventHeap()
    links = SharedLinks(clock, capacity)
    ends = [-1] * len(transfers)
    for i, (at, path, nbytes) in enumerate(transfers):
        clock.at(at, links.start, path, nbytes, lambda i=i: ends.__setitem__(i, clock.now))
    clock.run()
    return ends


@settings(max_examples=40)
@given(st.lists(sent, min_size=1, max_size=12), capacities)
def test_a_link_is_never_idle_while_there_is_something_to_send_over_it(
    transfers: list[tuple[int, Path, int]], capacity: list[float]
) -> None:
    # With one link for all, the last byte is there at the same time, however the link is shared.
    single, free = sorted((at, (0,), nbytes) for at, _, nbytes in transfers), 0.0
    for at, _, nbytes in single:
        free = max(free, at) + 1e9 * nbytes / capacity[0]
    assert max(ends_of(single, capacity)) == pytest.approx(free, rel=1e-6, abs=2.0 * len(single))


@settings(max_examples=40)
@given(st.lists(sent, max_size=10, unique_by=lambda one: one[1]), capacities, st.randoms(use_true_random=False))
def test_ends_do_not_depend_on_the_order_of_transfers_that_start_at_once(
    transfers: list[tuple[int, Path, int]], capacity: list[float], r
) -> None:
    transfers = [(0, path, nbytes) for _, path, nbytes in transfers]
    expected = dict(zip(transfers, ends_of(transfers, capacity), strict=True))
    r.shuffle(transfers)
    for transfer, end in zip(transfers, ends_of(transfers, capacity), strict=True):
        assert end == pytest.approx(expected[transfer], rel=1e-6, abs=20)


def test_the_end_of_a_transfer_may_start_the_next_one() -> None:
    clock, ends = EventHeap(), list[int]()
    links = SharedLinks(clock, [100.0])

    def next_one() -> None:
        ends.append(clock.now)
        if len(ends) < 5:
            links.start((0,), 100, next_one)

    next_one()
    clock.run()
    assert ends == [i * 10**9 for i in range(5)]


def test_transfers_of_one_instant_share_once() -> None:
    clock = EventHeap()
    links = SharedLinks(clock, [100.0] * 6)
    for i in range(50):
        clock.at(0, links.start, (0, i % 5 + 1), 100, lambda: None)
    clock.run()
    assert links.sharings == 2  # at the start, and after all have ended together


def test_a_transfer_of_months_ends() -> None:
    # A float of 2e16 ns is 4 ns coarse.
    assert ends_of([(3, (0,), 10**7 + 1)], [0.5 + 1e-9])[0] == pytest.approx(2e16, rel=1e-6)


def test_ends_do_not_depend_on_where_the_clock_stands() -> None:
    transfers = [(7 * i, (i % 3, 3 + i % 2), 1000 + i) for i in range(20)]
    epoch = 1_790_000_000_123_456_789
    later = ends_of([(epoch + at, path, nbytes) for at, path, nbytes in transfers], [3e6, 7e6, 1e7, 1e7, 9e6])
    assert [end - epoch for end in later] == ends_of(transfers, [3e6, 7e6, 1e7, 1e7, 9e6])


# -- compared with SimGrid -------------------------------------------------------------------------


def simgrid_ends(topology: Topology, transfers: list[Transfer], *, latencies: bool) -> list[float]:
    """When the transfers end by SimGrid; without latencies, they begin when their first bytes would be there."""
    names = [host.name for host in topology.hosts]
    routes = {(a, b): topology.route(a, b) for a in names for b in names if a != b}
    late, links = 0.0 if latencies else 1.0, topology.links
    given = {
        "hosts": names,
        "links": [(rate, link.latency_seconds * latencies) for link in links for rate in (link.bandwidth, link.back)],
        "routes": [(*pair, [2 * i + (not forth) for i, forth in route.links]) for pair, route in routes.items()],
        "transfers": [(at + late * routes[a, b].latency_seconds, a, b, n) for at, a, b, n in transfers],
    }
    command = [SYSTEM_PYTHON, str(File(__file__).with_name("simgrid_oracle.py"))]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=200, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


# SimGrid gives a transfer of twice the latency half the share: in the last case, all have the same, as it is modelled.
@pytest.mark.needs("simgrid")
@pytest.mark.parametrize(("seed", "latencies"), [(1, False), (2, False), (3, True)])
def test_transfers_end_as_in_simgrid(seed: int, latencies: bool) -> None:
    topology = random_topology(seed, latency=not latencies)
    if latencies:
        links = tuple(replace(link, latency_seconds=0.05 * link.ends[0].startswith("h")) for link in topology.links)
        topology = replace(topology, links=links)
    transfers = random_transfers(seed, topology, 100 if latencies else 200, seconds=5.0 if latencies else 10.0)
    expected = simgrid_ends(topology, transfers, latencies=latencies)
    np.testing.assert_allclose(arrivals(topology, transfers), expected, rtol=1e-5, atol=1e-5)
