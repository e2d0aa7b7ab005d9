"""The same traces on the same networks, here and by SimGrid's replay."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from dask_efficiency.simulation.mpi.result import run
from dask_efficiency.simulation.mpi.settings import MpiSettings
from dask_efficiency.simulation.mpi.trace_files import from_mpi_trace
from tests.simulation.mpi.programs import PROGRAMS, written
from tests.simulation.mpi.smpi import needs_smpi, replayed
from tests.simulation.topologies import random_topology

EAGER = 16_384

#: Collectives of the programs by an algorithm that both have: ours, and the name that SimGrid has for it.
SAME = {
    "allreduce": ("recursive_doubling", "rdb"),
    "alltoall": ("pairwise", "pair"),
    "bcast": ("binomial", "binomial_tree"),
    "reduce": ("binomial", "binomial"),
}


@needs_smpi
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_take_as_long_as_simgrid_says_and_hosts_rank_alike(name: str, tmp_path: Path) -> None:
    ranks = 8
    topology = random_topology(3)
    trace = written(tmp_path, PROGRAMS[name](ranks))
    program = from_mpi_trace(trace)
    settings = MpiSettings(
        algorithms={call: ours for call, (ours, _) in SAME.items()},
        eager_bytes=EAGER,
        handshake=False,
        instructions_per_second=1e9,
    )
    config = [f"smpi/{call}:{theirs}" for call, (_, theirs) in SAME.items()]
    here, there = [], []
    for seed in range(4):
        hosts = Random(seed).sample([host.name for host in topology.hosts], ranks)
        here.append(run(program, topology, hosts, settings).makespan_seconds)
        there.append(replayed(trace, topology, hosts, tmp_path, EAGER, config))
    assert here == pytest.approx(there, rel=0.02)
    assert list(np.argsort(here)) == list(np.argsort(there))
