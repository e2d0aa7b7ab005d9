"""Traces of three programs by the tracer, and by SimGrid's own tracing."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from dask_efficiency.mpi.lines import nbytes_of_type
from dask_efficiency.mpi.result import run
from dask_efficiency.mpi.settings import MpiSettings
from dask_efficiency.mpi.trace_files import load_trace as from_mpi_trace
from tests.mpi.tracer.conftest import PROGRAMS, Recorded
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
def simgrid(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[list[Call]]]:
    """The calls of a program's ranks, by SimGrid's tracing."""

    def traced(name: str) -> list[list[Call]]:
        folder = tmp_path_factory.mktemp(name)
        (folder / "lab.xml").write_text(PLATFORM)
        subprocess.run(["smpicc", "-O1", "-w", str(PROGRAMS / f"{name}.c"), "-o", name], cwd=folder, check=True)
        command = [
            "smpirun",
            "-np",
            str(RANKS),
            "-platform",
            "lab.xml",
            "-trace-ti",
            "--cfg=tracing/filename:trace.txt",
        ]
        command += ["--cfg=smpi/host-speed:1Gf", "--log=root.thres:error", f"./{name}"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
        files = (folder / "trace.txt").read_text().split()
        return [calls((folder / file).read_text().splitlines()) for file in files]

    return traced


@pytest.fixture
def traced(record: Callable[..., Recorded], program: Callable[[str], Path]) -> Callable[[str], list[list[Call]]]:
    """Trace by the tracer."""
    return lambda name: [calls(lines[1:]) for lines in record(["mpiexec", "-n", RANKS, program(name)])[0]]


@pytest.mark.parametrize("name", ["stencil", "transposition"])
def test_calls_and_bytes_are_those_of_simgrid(
    name: str, simgrid: Callable[[str], list[list[Call]]], traced: Callable[[str], list[list[Call]]]
) -> None:
    here = traced(name)
    assert sum(map(len, here)) > 40
    assert here == simgrid(name)


def test_messages_from_any_are_as_many_and_as_large_as_those_of_simgrid(
    simgrid: Callable[[str], list[list[Call]]], traced: Callable[[str], list[list[Call]]]
) -> None:
    # Who gets which work depends on who is done first.
    here, there = (
        [call for rank in ranks for call in rank] for ranks in (traced("master_worker"), simgrid("master_worker"))
    )
    assert Counter(name for name, *_ in here) == Counter(name for name, *_ in there)
    assert Counter(nbytes for name, _, nbytes in here if name == "send") == Counter(
        nbytes for name, _, nbytes in there if name == "send"
    )


@pytest.mark.parametrize("name", ["stencil", "master_worker", "transposition"])
def test_every_message_is_received_and_the_simulated_program_ends(
    name: str, traced: Callable[[str], list[list[Call]]], tmp_path: Path
) -> None:
    ranks = traced(name)
    sent = Counter(
        (rank, *place, *nbytes) for rank, made in enumerate(ranks) for op, place, nbytes in made if "send" in op
    )
    received = Counter(
        (place[0], rank, place[1], *nbytes)
        for rank, made in enumerate(ranks)
        for op, place, nbytes in made
        if "recv" in op
    )
    assert sent == received
    topology = random_topology(1)
    hosts = [host.name for host in topology.hosts][:RANKS]
    result = run(from_mpi_trace(tmp_path / "trace.txt"), topology, hosts, MpiSettings())
    assert result.makespan_seconds > 0
