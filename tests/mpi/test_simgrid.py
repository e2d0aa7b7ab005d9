"""Traces on networks, simulated here and by SimGrid's replay."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from dask_efficiency.mpi.machine import MpiSettings
from dask_efficiency.mpi.result import run
from dask_efficiency.mpi.trace_files import load_trace as from_mpi_trace
from tests.mpi.programs import PROGRAMS, written
from tests.mpi.simgrid import SELECTORS, options, replayed
from tests.simulation.topologies import random_topology

needs_smpi = pytest.mark.needs("smpirun")

EAGER = 16_384
#: Algorithms of the programs' collectives that SimGrid has as well.
SAME = {"allreduce": "recursive_doubling", "alltoall": "pairwise", "bcast": "binomial", "reduce": "binomial"}

SIZES = (1_000, 200_000)

RANKS = 8
#: SimGrid scatters to small subtrees first, and MPICH to large ones.
COMPARED = [key for key in (*SELECTORS, ("alltoall", "pairwise")) if key != ("scatter", "binomial")]


def config(algorithms: dict[str, str]) -> list[str]:
    found = [option for name, algorithm in algorithms.items() for option in options(name, algorithm, RANKS)]
    return [option.removeprefix("--cfg=") for option in found]


def settings(algorithms: dict[str, str]) -> MpiSettings:
    return MpiSettings(algorithms=algorithms, eager_bytes=EAGER, handshake=False, instructions_per_second=1e9)


def line(collective: str, nbytes: int) -> str:
    """A collective of so many bytes, by each rank or of all, as a trace has it."""
    each = " ".join([str(nbytes // RANKS)] * RANKS)
    return {
        "allgather": f"allgather {nbytes} {nbytes} 6 6",
        "allgatherv": f"allgatherv {nbytes // RANKS} {each} 6 6",
        "allreduce": f"allreduce {nbytes} 0 6",
        "alltoall": f"alltoall {nbytes // RANKS} {nbytes // RANKS} 6 6",
        "alltoallv": f"alltoallv {nbytes} {each} {nbytes} {each} 6 6",
        "barrier": "barrier",
        "bcast": f"bcast {nbytes} 0 6",
        "gather": f"gather {nbytes} {nbytes} 0 6 6",
        "reduce": f"reduce {nbytes} 0 0 6",
        "reduce_scatter": f"reducescatter {each} 0 6",
        "scatter": f"scatter {nbytes} {nbytes} 0 6 6",
    }[collective]


@needs_smpi
@pytest.mark.parametrize(("collective", "algorithm"), COMPARED)
def test_a_collective_takes_as_long_as_in_simgrid(collective: str, algorithm: str, tmp_path: Path) -> None:
    topology = random_topology(5)
    lines = [f"{rank} {line(collective, nbytes)}" for nbytes in SIZES for rank in range(RANKS)]
    trace = written(tmp_path, iter([f"{rank} init" for rank in range(RANKS)] + lines))
    hosts = [host.name for host in topology.hosts][:RANKS]
    forced = {collective: algorithm}
    found = run(from_mpi_trace(trace), topology, hosts, settings(forced))
    assert set(found.algorithms[collective]) == {algorithm}
    assert found.makespan_seconds == pytest.approx(
        replayed(trace, topology, hosts, tmp_path, EAGER, config(forced)), rel=0.05
    )


@needs_smpi
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_take_as_long_as_in_simgrid_and_hosts_rank_alike(name: str, tmp_path: Path) -> None:
    topology = random_topology(3)
    trace = written(tmp_path, PROGRAMS[name](RANKS))
    program = from_mpi_trace(trace)
    here, there = [], []
    for seed in range(4):
        hosts = Random(seed).sample([host.name for host in topology.hosts], RANKS)
        here.append(run(program, topology, hosts, settings(SAME)).makespan_seconds)
        there.append(replayed(trace, topology, hosts, tmp_path, EAGER, config(SAME)))
    assert here == pytest.approx(there, rel=0.02)
    assert list(np.argsort(here)) == list(np.argsort(there))
