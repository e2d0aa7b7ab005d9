"""Four processes train under torch.profiler, and in each step another one is late for another reason."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.lateness import LatenessCause
from dask_efficiency.torch_traces.path.ranks import JobRanks, job_ranks
from dask_efficiency.torch_traces.path.region import find_region
from dask_efficiency.torch_traces.path.tiling import tile_ranks
from tests.torch_traces.path import late_ranks
from tests.torch_traces.path.test_tiling_of_ranks import check

pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="torch is imported once, and its processes are forked"),
]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> KinetoTrace:
    folder = tmp_path_factory.mktemp("job")
    program = [sys.executable, "-m", "tests.torch_traces.path.gloo_job", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(program, check=True, env=environment, timeout=250, capture_output=True, cwd=ROOT)
    return load_kineto(folder)


@pytest.fixture(scope="module")
def ranks(trace: KinetoTrace) -> JobRanks:
    return job_ranks(trace)


@pytest.mark.parametrize("cause", [cause for cause in LatenessCause if cause != LatenessCause.UNKNOWN])
def test_rank_step_and_cause_are_right(ranks: JobRanks, cause: LatenessCause):
    step, rank = getattr(late_ranks, cause.name)
    row = ranks.stragglers.step.tolist().index(step)
    assert ranks.stragglers.rank[row] == rank
    assert LatenessCause(ranks.stragglers.cause[row]) == cause


def test_every_collective_and_every_message_is_found_on_all_ranks(ranks: JobRanks):
    sizes = np.bincount(ranks.collectives.arrivals.collective)
    assert sorted(sizes.tolist()) == [2] * late_ranks.MESSAGES + [late_ranks.RANKS] * 2 * (late_ranks.STEPS - 1)
    assert not ranks.collectives.left_out


def test_one_path_over_all_ranks_tiles_the_job_and_spends_most_time_with_those_that_are_late(
    trace: KinetoTrace, ranks: JobRanks
):
    graphs = [build_graph(rank, find_region(rank)) for rank in trace.ranks]
    stretches = tile_ranks(graphs, ranks.collectives.arrivals, ranks.clocks.offset)
    check(stretches, graphs, ranks.clocks.offset)
    for step, rank in (late_ranks.LATE_START, late_ranks.COMPUTE, late_ranks.DATA_LOADING, late_ranks.COMMUNICATION):
        late = ranks.late.step == step
        before, until = ranks.late.at[ranks.late.step < step].max(), ranks.late.at[late].max()
        lasts = np.clip(stretches.stop, before, until) - np.clip(stretches.start, before, until)
        assert np.bincount(stretches.rank, lasts).argmax() == rank
