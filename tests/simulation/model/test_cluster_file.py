from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.simulation.model.cluster_file import (
    abbreviate_names,
    expand_names,
    parse_cluster_file,
    read_cluster_file,
)
from dask_efficiency.simulation.model.topology import ETHERNET_PAYLOAD, Cable, Host


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("server", ["server"]),
        ("pc[08-11]", ["pc08", "pc09", "pc10", "pc11"]),
        ("pc[8-10,12].lab", ["pc8.lab", "pc9.lab", "pc10.lab", "pc12.lab"]),
    ],
)
def test_a_pattern_stands_for_names(pattern: str, names: list[str]) -> None:
    assert expand_names(pattern) == names


@pytest.mark.parametrize(
    "pattern", ["pc[", "pc[]", "pc[a-b]", "pc[3-1]", "pc[1-1000000000]", "r[1-2]pc[1-2]", "pc[1-]"]
)
def test_a_wrong_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        expand_names(pattern)


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{0,3}", fullmatch=True), unique=True))
def test_abbreviated_names_stand_for_the_same_names(names: list[str]) -> None:
    short = abbreviate_names(names)
    assert [name for part in short.split(", ") if part for name in expand_names(part)] == names
    assert abbreviate_names(["pc08", "pc09", "pc10", "pc12", "server"]) == "pc[08-10], pc12, server"


LAB = Path(__file__).parents[3] / "docs" / "lab" / "lab.yaml"

SMALL = """\
scheduler: head
payload: 0.9
switches: [top]
hosts:
  head: {slots: 0, address: 10.0.0.1, switch: top, bandwidth: 10 Gbit}
  pc[1-2]:
    cores: 8
    nthreads: 4
    memory: 16 GB
    loopback: 4 GB/s
    room: A
    speed: 2
    workers: 1
    switch: top
    bandwidth: 1 Gbit
    bandwidth_back: 100 Mbit
    latency: 50us
  pc3:
links:
  - {between: [pc3, top], bandwidth: 125 MB/s, latency: 0.1 ms, queue: 5 ms}
"""


def test_all_settings_of_a_file_are_read() -> None:
    read = parse_cluster_file(SMALL, "lab.yaml")
    about = {"slots": 2, "nthreads": 4, "memory": 16 * 10**9, "speed": 2.0, "loopback": 4e9, "room": "A"}
    head = Host("head", slots=0, address="10.0.0.1")
    assert read.topology.hosts == (head, Host("pc1", **about), Host("pc2", **about), Host("pc3"))
    assert read.topology.switches == ("top",)
    assert read.topology.links == (
        Cable(("head", "top"), 1.25e9),
        Cable(("pc1", "top"), 1.25e8, pytest.approx(5e-5), 1.25e7),
        Cable(("pc2", "top"), 1.25e8, pytest.approx(5e-5), 1.25e7),
        Cable(("pc3", "top"), 1.25e8, pytest.approx(1e-4), queue_seconds=pytest.approx(5e-3)),
    )
    assert read.topology.payload == 0.9
    assert read.scheduler == "head"
    assert read.workers == {"head": 0, "pc1": 1, "pc2": 1, "pc3": 1}
    assert read_cluster_file(LAB).topology.payload == ETHERNET_PAYLOAD


#: A mistake in place of a line of the file, the line that is then named, and the message.
WRONG = [
    ("bandwidth: 1 Gbit", "bandwidth: 10 Gbps/s", 15, "bandwidth: expected a bandwidth above 0 with its unit"),
    ("latency: 50us", "latency: 50", 17, "latency: expected a time with its unit, such as '50 us' or '0.1 ms', got '5"),
    ("memory: 16 GB", "memory: much", 9, "memory: expected a size, such as '16 GB' or '16 GiB', got 'much'"),
    ("cores: 8", "cores: 8.5", 7, "cores: expected a whole number of at least 0, got '8.5'"),
    ("cores: 8", "cores: [8]", 7, "expected a name or a number, got a sequence"),
    ("cores: 8", "corse: 8", 7, "'corse' is unknown here; there is: 'cores'"),
    ("cores: 8", "slots: 8\n    cores: 8", 8, "expected slots or cores, not both"),
    ("nthreads: 4", "nthreads: 0", 8, "nthreads: expected a whole number of at least 1, got '0'"),
    ("speed: 2", "speed: fast", 12, "speed: expected a number above 0, got 'fast'"),
    ("workers: 1", "workers: 9", 13, "'pc1' gets 9 workers and has 2 slots"),
    ("workers: 1", "workers: 1\n    workers: 1", 14, "'workers' is given twice"),
    ("room: A", "address: 10.0.0.9", 11, "expected an address for one host only, got one for 2"),
    ("    switch: top\n", "", 14, "a bandwidth needs the 'switch:' that it leads to"),
    ("    switch: top\n", "    switch: tip\n", 14, "no switch 'tip'; there is: 'top'"),
    ("  pc[1-2]:", "  pc[2-1]:", 6, "ascending numbers, got 'pc[2-1]'"),
    ("  pc3:", "  pc2:", 18, "'pc2' stands in line 6 already"),
    ("  pc3:", "  pc3:\n  pc4:", 19, "pc4: no links lead from here to 'head'"),
    ("switches: [top]", "switches: [top, top]", 3, "'top' stands in line 3 already"),
    ("switches: [top]", "switches: top", 3, "expected a list below 'switches', got a scalar"),
    ("[pc3, top]", "[pc3, tip]", 20, "no host or switch 'tip'; there is: 'top'"),
    ("[pc3, top]", "[pc3]", 20, "a link needs 'between: [one, other]', two hosts or switches, got ['pc3']"),
    ("bandwidth: 125 MB/s, ", "", 20, "the link between 'pc3' and 'top' needs a bandwidth, such as '1 Gbit'"),
    ("scheduler: head", "scheduler: haed", 1, "no host 'haed'; there is: 'head'"),
    ("payload: 0.9", "payload: 90", 2, "payload: expected a part above 0 and at most 1, got '90'"),
    ("payload: 0.9", "payload: {", 4, "this is not YAML"),
    ("payload: 0.9", "switch: [top]", 2, "'switch' is unknown here; there is: 'switches'"),
]


@pytest.mark.parametrize(("old", "new", "line", "wrong"), WRONG)
def test_a_mistake_is_named_with_its_line_and_the_expected_value(old: str, new: str, line: int, wrong: str) -> None:
    assert old in SMALL
    with pytest.raises(TextFileError) as caught:
        parse_cluster_file(SMALL.replace(old, new, 1), "my/lab.yaml")
    assert str(caught.value).startswith(f"my/lab.yaml, line {line}: ")
    assert wrong in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "hosts:", "- a", "hosts: [a]", "a: &a [*a]", "!!python/object:os.system x", "[" * 2000]
)
def test_a_file_that_describes_no_cluster_is_refused(text: str) -> None:
    with pytest.raises(TextFileError, match=r"lab\.yaml"):
        parse_cluster_file(text, "lab.yaml")
