"""Skew is no straggler: the task is named, and no worker is accused."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dask_efficiency import RunTrace
from dask_efficiency.cli import main
from dask_efficiency.runs.stragglers.long_tail import long_tail
from dask_efficiency.runs.stragglers.offline import find_stragglers
from tests.simulated_traces import MS, Graph, simulate

GIANT = 13


def skewed(count: int, *, times: int = 20, sized: bool = True, readers: bool = False, seed: int = 1) -> RunTrace:
    """Partitions that are read and worked on by 4 workers of 2 threads, one of them that many times as large."""
    rng = np.random.default_rng(seed)
    longer = np.where(np.arange(count) == GIANT, times, 1)
    work = (100 * MS * longer * np.exp(0.05 * rng.standard_normal(count))).astype(int).tolist()
    sizes = (1_000_000 * (longer if sized else np.ones(count, int))).tolist()
    if readers:
        return simulate(Graph(["read"] * count, [()] * count, work, sizes, range(count)), seed=seed)
    graph = Graph(
        ["read"] * count + ["work"] * count,
        [()] * count + [(i,) for i in range(count)],
        [MS] * count + work,
        sizes + [100] * count,
        range(count, 2 * count),
    )
    return simulate(graph, seed=seed)


@pytest.mark.parametrize("readers", [False, True])
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("count", [40, 80, 400])
@pytest.mark.parametrize("seed", range(4))
def test_one_partition_that_is_20_times_as_large_accuses_no_worker(count, sized, readers, seed):
    assert find_stragglers(skewed(count, sized=sized, readers=readers, seed=seed)) == []


def test_the_long_task_is_named_with_its_size_and_alike_ones_or_a_small_part_of_the_run_are_no_long_tail() -> None:
    trace = skewed(80)
    [found] = long_tail(trace)
    assert (found.prefix, found.count, found.nbytes, found.median_bytes) == ("work", 80, 20e6, 1e6)
    assert (found.key, found.times_larger) == (trace.keys[80 + GIANT], 20)
    assert found.times_longer == pytest.approx(20, rel=0.2)
    assert long_tail(skewed(4000, times=5)) == long_tail(skewed(80, times=1)) == ()


@pytest.mark.parametrize("sized", [False, True])
def test_the_command_names_the_task(tmp_path: Path, sized: bool) -> None:
    file = tmp_path / "run.trace"
    trace = skewed(80, sized=sized)
    trace.save(file)
    output = " ".join(CliRunner().invoke(main, ["stragglers", str(file)]).output.split())
    key = trace.keys[80 + GIANT]
    assert "None of 4 workers is slow; one task takes far longer than its like." in output
    assert f"1. One task takes far longer than its like: saves up to 2.0 s. Task {key} took 2.0 s" in output
    assert (", its input is 20 times as large Split it, or" in output) is sized
