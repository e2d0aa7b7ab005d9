import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.runs.trace.files import load_trace
from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.placement import PlacementError
from dask_efficiency.simulation.model.topology import ConstantNetwork, Host, Topology
from tests.simulation.topologies import MBIT, star, topologies

RECORDED = Path(__file__).parents[2] / "data" / "traces" / "everything.trace"

THREE = tuple(WorkerSpec(str(i), f"tcp://10.0.0.{i}:4000{i}", f"10.0.0.{i}", 2, 10**9) for i in range(3))


def lab(*slots: int) -> Topology:
    hosts = [Host(f"pc{i}", slots=n, memory=8 * 10**9, address=f"10.0.0.{i}") for i, n in enumerate(slots)]
    return star(hosts, 1000 * MBIT)


def names(cluster: ClusterSpec) -> list[str]:
    return [worker.name for worker in cluster.workers]


def hostfile(path: Path, text: str) -> Path:
    file = path / "hosts"
    file.write_text(text)
    return file


def test_a_worker_that_was_replaced_is_not_there_twice() -> None:
    old, other = (WorkerSpec(name, f"tcp://10.0.0.1:{name}", "10.0.0.1", 1, 0, clock_offset=7) for name in "ab")
    workers = (old, other, replace(old, address="tcp://10.0.0.1:3"), replace(other, name="c"))
    cluster = ClusterSpec.from_trace(replace(load_trace(RECORDED), workers=workers))
    assert [(worker.name, worker.address[-1]) for worker in cluster.workers] == [("a", "3"), ("c", "b")]
    assert all(worker.clock_offset == 0 for worker in cluster.workers)


def test_fewer_workers_are_the_first_ones_with_their_speeds() -> None:
    cluster = ClusterSpec(THREE, speeds={"0": 2.0, "2": 0.5}).with_workers(2)
    assert cluster.workers == THREE[:2]
    assert cluster.speeds == {"0": 2.0}


@given(st.integers(1, 30), st.integers(1, 4))
@settings(max_examples=30)
def test_more_workers_are_copies_taken_in_turn_with_names_of_their_own(n: int, hosts: int) -> None:
    recorded = tuple(
        WorkerSpec(f"w-{i}", f"tcp://h{i % hosts}:{i}", f"h{i % hosts}", i + 1, 10**9, {"GPU": i}) for i in range(4)
    )
    cluster = ClusterSpec(recorded, speeds={"w-1": 0.5}).with_workers(n)
    assert len({*names(cluster)}) == len({worker.address for worker in cluster.workers}) == n
    for i, worker in enumerate(cluster.workers):
        assert (worker.nthreads, worker.resources) == (recorded[i % 4].nthreads, recorded[i % 4].resources)
        assert worker.host in worker.address
        assert cluster.speeds.get(worker.name, 1.0) == (0.5 if i % 4 == 1 else 1.0)
    # Twice the workers are on twice the hosts, if there is more than one.
    found = {worker.host for worker in cluster.workers}
    assert len(found) == 2 * hosts if hosts > 1 and n == 8 else hosts > 1 or found == {"h0"}
    again = cluster.with_workers(n + 7)
    assert len({*names(again.without_workers(names(again)[0]).with_workers(2 * n + 20))}) == 2 * n + 20


def test_threads_and_memory_are_those_of_every_worker() -> None:
    cluster = ClusterSpec(THREE).with_workers(np.int64(4), nthreads=8, memory_limit=5)
    assert {(worker.nthreads, worker.memory_limit) for worker in cluster.workers} == {(8, 5)}
    assert cluster.nthreads == 32


def test_speeds_and_configuration_add_to_those_there_are() -> None:
    cluster = ClusterSpec(THREE, speeds={"0": 2.0}, config={"a": 1, "b": 1})
    assert cluster.with_speeds({"1": 0.5}).speeds == {"0": 2.0, "1": 0.5}
    assert cluster.with_config({"b": 2}).config == {"a": 1, "b": 2}


MADE, UNKNOWN = ClusterSpec(THREE), "^no worker '7' in this cluster; there is: '0', '1', '2'"


@pytest.mark.parametrize(
    ("ask", "error", "wrong"),
    [
        (lambda: ClusterSpec(()), ValueError, "at least one worker"),
        (lambda: MADE.with_workers(0), ValueError, "expected at least 1 worker, got 0"),
        (lambda: MADE.without_workers("0", "1", "2"), ValueError, "at least one worker"),
        (lambda: ClusterSpec((*THREE, THREE[0])), ValueError, "name of each worker to be its own, got '0' twice"),
        (
            lambda: ClusterSpec((*THREE, replace(THREE[0], name="x"))),
            ValueError,
            "address of each worker to be its own",
        ),
        (lambda: MADE.with_workers(3, nthreads=0), ValueError, "at least 1 thread of worker '0', got 0"),
        (lambda: MADE.with_workers(3, memory_limit=-1), ValueError, "memory limit of worker '0', got -1"),
        (lambda: MADE.with_speeds({"1": 0.0}), ValueError, "speed above 0 of worker '1', got 0.0"),
        (lambda: MADE.with_cores({"nowhere": 2}), ValueError, "no worker is on the host 'nowhere'"),
        (lambda: MADE.with_cores({"": 2}), ValueError, "no worker is on the host ''"),
        (lambda: MADE.with_cores({"10.0.0.0": 0}), ValueError, "0 cores"),
        (lambda: ClusterSpec(THREE, cores={"10.0.0.0": 0}), ValueError, "0 cores"),
        (lambda: MADE.without_workers("7"), UnknownNameError, UNKNOWN),
        (lambda: MADE.with_speeds({"7": 2.0}), UnknownNameError, UNKNOWN),
        (
            lambda: MADE.with_network(lab(1, 1)),
            UnknownNameError,
            r"^no host '10\.0\.0\.2' in the topology",
        ),
        (
            lambda: ClusterSpec(THREE[:1], lab(1), scheduler_host="head"),
            UnknownNameError,
            "^no host 'head' in ",
        ),
        *((partial(MADE.with_workers, n), TypeError, f"number of workers, got {n!r}") for n in (2.5, True, "2")),
    ],
)
def test_an_impossible_cluster_is_refused(ask: Callable[[], Any], error: type[Exception], wrong: str) -> None:
    with pytest.raises(error, match=wrong):
        ask()


def test_more_workers_fill_the_slots_of_a_topology_host_by_host() -> None:
    assert names(ClusterSpec(THREE).with_network(lab(1, 1, 2)).with_workers(4)) == ["0", "1", "2", "pc2-0"]
    cluster = ClusterSpec((WorkerSpec("x", "tcp://pc1:1", "pc1", 1, 0),), lab(2, 2, 3))
    found = [(worker.host, worker.memory_limit) for worker in cluster.with_workers(5).workers]
    assert found == [("pc1", 0), *[("pc0", 4 * 10**9)] * 2, ("pc1", 4 * 10**9), ("pc2", 8 * 10**9 // 3)]
    with pytest.raises(PlacementError, match="8 workers, and the hosts of the topology have 7 slots"):
        cluster.with_workers(8)


PLACES = """
switches: [top]
hosts:
  pc0: {slots: 2, address: 10.0.0.0, switch: top, bandwidth: 1 Gbit}
  pc1: {slots: 2, address: 10.0.0.1, switch: top, bandwidth: 1 Gbit}
  pc2: {slots: 3, address: 10.0.0.2, switch: top, bandwidth: 1 Gbit}
"""


def test_a_file_alone_fills_every_slot_and_a_hostfile_places_the_workers(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(
        "hosts: {head: {slots: 0}, pc: {slots: 2, speed: 2}}\nlinks: [{between: [head, pc], bandwidth: 1 Gbit}]"
    )
    cluster = ClusterSpec.from_file(file)
    found = [(worker.name, worker.address) for worker in cluster.workers]
    assert found == [("pc-0", "tcp://pc:40000"), ("pc-1", "tcp://pc:40001")]
    assert cluster.speeds == {"pc-0": 2.0, "pc-1": 2.0}
    assert ClusterSpec.from_file(file, hostfile(tmp_path, "pc")).workers == cluster.workers[:1]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pc0:1\npc9:2", "line 2: no host 'pc9' in the topology; there is: 'pc"),
        ("pc0:1\npc1:5", "line 2: 'pc1' gets 5 workers and has 2 slots"),
        ("pc0:1\n10.0.0.0:2", "line 2: 'pc0' gets 3 workers and has 2 slots"),
    ],
)
def test_a_hostfile_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, text: str, wrong: str) -> None:
    path, lab = hostfile(tmp_path, text), tmp_path / "lab.yaml"
    lab.write_text(PLACES)
    with pytest.raises(TextFileError) as caught:
        ClusterSpec.from_file(lab, path)
    assert str(caught.value).startswith(f"{path}, {wrong}")


@given(topologies(), st.data())
@settings(max_examples=20)
def test_a_cluster_travels_as_json(topology: Topology, data: st.DataObject) -> None:
    hosts = data.draw(st.lists(st.sampled_from([host.name for host in topology.hosts]), min_size=1))
    workers = tuple(
        WorkerSpec(f"w{i}", f"tcp://{host}:{i}", host, i + 1, 10**9, {"GPU": 1.0}) for i, host in enumerate(hosts)
    )
    network = data.draw(st.sampled_from([None, ConstantNetwork(1e8, 1e-3), topology]))
    config, cores = {"distributed.worker.x": 1.1}, {hosts[0]: 0.5}
    cluster = ClusterSpec(workers, network, {"w0": 0.5}, config, hosts[0], cores)
    assert ClusterSpec.from_dict(json.loads(json.dumps(cluster.to_dict()))) == cluster
    assert cluster.with_cores({hosts[-1]: 2}).cores == cores | {hosts[-1]: 2}


def test_recorded_cores_of_hosts_are_copied_along_with_them() -> None:
    trace = load_trace(RECORDED)
    assert ClusterSpec.from_trace(trace).cores == {}  # it was recorded before cores were
    cluster = ClusterSpec.from_trace(replace(trace, workers=tuple(replace(worker, cores=1.5) for worker in THREE)))
    assert cluster.cores == dict.fromkeys((worker.host for worker in THREE), 1.5)
    twice = cluster.with_workers(6)
    assert set(twice.cores) == {worker.host for worker in twice.workers}
    assert len(twice.cores) == 6


def test_a_scheduler_without_a_host_is_on_the_only_one() -> None:
    one = ClusterSpec(tuple(replace(worker, host="a") for worker in THREE))
    assert one.with_scheduler == "a"
    assert replace(one, scheduler_host="b").with_scheduler == "b"
    assert ClusterSpec(THREE).with_scheduler == ""
