from dataclasses import replace

import pytest
from hypothesis import given, settings

from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.picture import draw_topology
from dask_efficiency.simulation.model.topology import Cable, Host, Topology
from tests.simulation.model.test_cluster_file import LAB
from tests.simulation.topologies import MBIT, topologies


def test_the_lab_is_drawn_as_its_page_shows_it() -> None:
    cluster = ClusterSpec.from_file(LAB, LAB.with_name("room-b.txt"))
    picture = cluster.picture()
    page = (LAB.parents[1] / "clusters.md").read_text(encoding="utf-8")
    assert f"```text\n{picture}\n```" in page
    assert [line for line in picture.splitlines() if "<-" in line] == [
        "   └─ pc17                  1 Gbit, 50 us     4 slots, 4 workers; <- the rest of room B is at room-b"
    ]


def test_hosts_on_one_cable_and_links_outside_the_tree_are_drawn() -> None:
    ends = [("s", "t"), ("t", "u"), ("u", "s"), ("a", "t"), ("b", "u")]
    links = tuple(Cable(end, 100 * MBIT, 1e-3, bandwidth_back=10 * MBIT) for end in ends)
    assert draw_topology(Topology((Host("a"), Host("b", speed=0.5)), ("s", "t", "u"), links)).splitlines() == [
        "s",
        "├─ t     10 Mbit up, 100 Mbit down, 1 ms",
        "│  └─ a  100 Mbit up, 10 Mbit down, 1 ms  1 slot",
        "└─ u     100 Mbit up, 10 Mbit down, 1 ms",
        "   └─ b  100 Mbit up, 10 Mbit down, 1 ms  1 slot; 0.5 times as fast",
        "also t - u: 100 Mbit, 10 Mbit back",
    ]
    topology = Topology((Host("a"), Host("b")), (), (Cable(("a", "b"), 100 * MBIT),))
    assert draw_topology(topology) == "a               1 slot\n└─ b  100 Mbit  1 slot"
    with pytest.raises(ValueError, match="describes its switches"):
        replace(ClusterSpec.from_file(LAB), network=None).picture()


@given(topologies())
@settings(max_examples=30)
def test_every_switch_is_drawn_once_and_hosts_are_drawn(topology: Topology) -> None:
    # A host's name and the switches' are made of a letter and a number.
    lines = [line for line in draw_topology(topology).splitlines() if not line.startswith("also ")]
    labels = [line.lstrip(" │├└─").partition("  ")[0] for line in lines]
    assert sorted(label for label in labels if label.startswith("s")) == sorted(topology.switches)
    assert any("h" in label for label in labels)
