"""Traces of three programs by the tracer, and by SimGrid's own tracing."""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

import pytest

from dask_efficiency.mpi.lines import nbytes_of_type
from dask_efficiency.mpi.machine import MpiSettings
from dask_efficiency.mpi.result import run
from dask_efficiency.mpi.trace_files import load_trace as from_mpi_trace
from tests.mpi.tracer.conftest import PROGRAMS, Compile, Record
from tests.simulation.topologies import random_topology

RANKS = 4

PLATFORM = """<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
<cluster id="lab" prefix="pc" suffix="" radical="0-3" speed="1Gf" bw="125MBps" lat="50us"/>
</platform>
"""

#: Words that are no counts: of a message its peer and tag, of a collective its root and what it computes; without the
#: datatypes at the end, of which the collectives with two counts have two.
PLAIN_WORDS = {
    "send": (0, 1),
    "isend": (0, 1),
    "recv": (0, 1),
    "irecv": (0, 1),
    "bcast": (1,),
    "reduce": (1, 2),
    "allreduce": (1,),
    "alltoall": (),
    "allgatherv": (),
    "gatherv": (1 + RANKS,),
    "reducescatter": (RANKS,),
    "barrier": (),
}
TWO_TYPES = ("alltoall", "allgatherv", "gatherv")

#: Name, peer and tag or root, and bytes.
Call = tuple[str, tuple[int, ...], tuple[int, ...]]
#: Calls of a program's ranks, by its name.
Traced = Callable[[str], list[list[Call]]]


def calls(lines: Iterable[str]) -> list[Call]:
    """The messages and collectives of a rank, without waits, tests and what it computes."""
    found = []
    for line in lines:
        words = line.split(" @")[0].split()
        name = words[1].lower()
        if name == "sendrecv":
            sent, to, got, source, kind, got_kind = words[2:]
            found += [_call("irecv", [source, "3", got, got_kind]), _call("isend", [to, "3", sent, kind])]
        elif name in PLAIN_WORDS:
            found.append(_call(name, words[2:]))
    return found


def _call(name: str, words: list[str]) -> Call:
    types = 0 if name == "barrier" else 2 if name in TWO_TYPES else 1
    numbers, kinds = [int(float(word)) for word in words[: len(words) - types]], words[len(words) - types :]
    size = max((nbytes_of_type(kind) for kind in kinds), default=0)
    plain = PLAIN_WORDS[name]
    counts = [number * size for i, number in enumerate(numbers) if i not in plain]
    return name, tuple(numbers[i] for i in plain), tuple(counts)


@pytest.fixture(scope="session")
def simgrid(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    def traced(name: str) -> list[list[Call]]:
        folder = tmp_path_factory.mktemp(name)
        (folder / "lab.xml").write_text(PLATFORM)
        subprocess.run(["smpicc", "-O1", "-w", str(PROGRAMS / f"{name}.c"), "-o", name], cwd=folder, check=True)
        command = ["smpirun", "-np", str(RANKS), "-platform", "lab.xml", "-trace-ti"]
        command += [
            "--cfg=tracing/filename:trace.txt",
            "--cfg=smpi/host-speed:1Gf",
            "--log=root.thres:error",
            f"./{name}",
        ]
        subprocess.run([*command, f"./{name}"], cwd=folder, check=True, capture_output=True, timeout=120)
        files = (folder / "trace.txt").read_text().split()
        return [calls((folder / file).read_text().splitlines()) for file in files]

    return traced


@pytest.fixture
def traced(record: Record, program: Compile) -> Traced:
    return lambda name: [calls(lines[1:]) for lines in record(["mpiexec", "-n", RANKS, program(name)])[0]]


@pytest.mark.parametrize("name", ["stencil", "transposition"])
def test_calls_and_bytes_are_those_of_simgrid(name: str, simgrid: Traced, traced: Traced) -> None:
    here = traced(name)
    assert sum(map(len, here)) > 40
    assert here == simgrid(name)


def test_messages_from_any_are_as_many_and_as_large_as_those_of_simgrid(simgrid: Traced, traced: Traced) -> None:
    # Who gets which work depends on who is done first.
    here, there = (list(chain.from_iterable(ranks("master_worker"))) for ranks in (traced, simgrid))
    assert Counter(name for name, *_ in here) == Counter(name for name, *_ in there)
    sent, expected = (Counter(call[2] for call in calls if call[0] == "send") for calls in (here, there))
    assert sent == expected


@pytest.mark.parametrize("name", ["stencil", "master_worker", "transposition"])
def test_every_message_is_received_and_the_simulated_program_ends(name: str, traced: Traced, tmp_path: Path) -> None:
    ranks = traced(name)
    made = [(rank, *call) for rank, calls_of_rank in enumerate(ranks) for call in calls_of_rank]
    sent = Counter((rank, *place, *nbytes) for rank, op, place, nbytes in made if "send" in op)
    assert sent == Counter((place[0], rank, place[1], *nbytes) for rank, op, place, nbytes in made if "recv" in op)
    topology = random_topology(1)
    hosts = [host.name for host in topology.hosts][:RANKS]
    result = run(from_mpi_trace(tmp_path / "trace.txt"), topology, hosts, MpiSettings())
    assert result.makespan_seconds > 0
