from pathlib import Path
from random import Random

import pytest

from dask_efficiency.mpi.machine import MpiSettings
from dask_efficiency.mpi.result import run
from dask_efficiency.mpi.timeline import RankActivity
from dask_efficiency.mpi.trace_files import load_trace as from_mpi_trace
from tests.mpi.programs import PROGRAMS, written
from tests.simulation.topologies import random_topology


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(4))
def test_the_path_tiles_the_makespan_and_kinds_add_up(name: str, seed: int, tmp_path: Path) -> None:
    topology = random_topology(seed)
    ranks = 2 + seed * 3
    program = from_mpi_trace(written(tmp_path, PROGRAMS[name](ranks)))
    hosts = Random(seed).choices([host.name for host in topology.hosts], k=ranks)
    found = run(program, topology, hosts, MpiSettings(overhead_seconds=1e-5 * (seed % 2), instructions_per_second=1e9))
    assert found.path[0].start == 0
    assert found.path[-1].end == round(1e9 * found.makespan_seconds)
    assert all(one.end == other.start for one, other in zip(found.path, found.path[1:], strict=False))
    assert all(stretch.kind != RankActivity.WAITING for stretch in found.path)
    assert sum(found.path_seconds.values()) == pytest.approx(found.makespan_seconds)
    assert sum(found.breakdown.values()) == pytest.approx(ranks * found.makespan_seconds)


def test_the_path_goes_through_the_rank_that_is_late(tmp_path: Path) -> None:
    text = "".join(f"{rank} compute {1e9 * (rank == 2)}\n{rank} allreduce 8 0 6\n" for rank in range(4))
    topology = random_topology(1)
    found = run(from_mpi_trace(written(tmp_path, text)), topology, [topology.hosts[0].name] * 4)
    assert found.path[0].rank == 2
    assert found.path[0].kind == RankActivity.COMPUTE
