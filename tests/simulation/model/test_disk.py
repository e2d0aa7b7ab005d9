from dataclasses import replace

import numpy as np
import pytest

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.schema import BLOCKED_BY, Blocked, Runs, Series
from dask_efficiency.simulation.model.disk import BANDWIDTH, LATENCY, Disk, read_disk, read_unmanaged, spill_moves
from tests.simulated_traces import MS, Graph, simulate

MB = 1_000_000


def full(limit: int) -> RunTrace:
    """Four results of 10 MB, one after the other, and then a task that needs each of them."""
    prefixes, inputs = ["make"] * 4 + ["use"] * 4, [[], [], [], [], [0], [1], [2], [3]]
    graph = Graph(prefixes, inputs, [10 * MS] * 8, [10 * MB] * 4 + [0] * 4, {*range(4, 8)})
    trace = simulate(graph, workers=1, nthreads=1)
    # No result is let go of, and tasks run in the order of their numbers.
    runs = trace.runs.columns()
    runs = Runs.from_columns(runs | {"task": np.sort(runs["task"])})
    workers = (replace(trace.workers[0], memory_limit=limit),)
    return replace(trace, runs=runs, transitions=trace.transitions.take(np.zeros(0, int)), workers=workers)


def test_nothing_is_moved_if_all_results_fit() -> None:
    moves = spill_moves(full(100 * MB), [0])
    assert not moves.stored.any()
    assert not moves.read.any()
    assert not moves.pushed.any()
    assert read_disk(full(100 * MB)) == Disk(BANDWIDTH, BANDWIDTH)


def test_the_least_recently_used_results_are_written_and_read_back_when_they_are_needed() -> None:
    # 0.6 of 40 MB is room for two. The third pushes the first out, the fourth the second; then each comes back in turn
    # and pushes out the one that is needed last.
    moves = spill_moves(full(40 * MB), [0])
    assert moves.stored[0].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert moves.read[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert moves.pushed[1].tolist() == [0, 0, 0, 0, 10 * MB, 10 * MB, 10 * MB, 10 * MB]


def test_the_speed_of_a_disk_follows_from_the_moved_bytes_and_the_time_that_it_took() -> None:
    trace, disk = full(40 * MB), Disk(write=100e6, read=50e6)
    moves = spill_moves(trace, [0])
    spill = moves.stored[0] * LATENCY + moves.stored[1] / disk.write * 1e9
    unspill = (moves.pushed + moves.read)[0] * LATENCY
    unspill = unspill + moves.pushed[1] / disk.write * 1e9 + moves.read[1] / disk.read * 1e9
    columns = trace.runs.columns() | {"spill_ns": spill.astype(np.int64), "unspill_ns": unspill.astype(np.int64)}
    trace = replace(trace, runs=Runs.from_columns(columns))
    found = read_disk(trace)
    assert (found.write, found.read) == (pytest.approx(disk.write, 0.01), pytest.approx(disk.read, 0.01))
    # Event loops wrote and read for longer than runs waited for.
    took = {"spill": 6 * (LATENCY + 10 * MB / 50e6 * 1e9), "unspill": 4 * (LATENCY + 10 * MB / 25e6 * 1e9)}
    table = dict.fromkeys(("worker", "start", "moving_ns"), np.zeros(2, np.int64))
    table |= {"stop": [*took.values()], "cause": [BLOCKED_BY.index(cause) for cause in took]}
    blocked = Blocked.from_columns({name: np.array(column).astype(np.int64) for name, column in table.items()})
    found = read_disk(replace(trace, blocked=blocked))
    assert (found.write, found.read) == (pytest.approx(50e6, 0.01), pytest.approx(25e6, 0.01))


def test_unmanaged_memory_is_that_of_heartbeats_without_results_in_memory() -> None:
    trace = simulate(Graph(["a"], [[]], [MS], [1], {0}), workers=2, nthreads=1)
    beats = {"memory": [300e6, 420e6, 310e6], "managed": [100e6, 500e6, 110e6], "spilled": [0.0, 280e6, np.nan]}
    series = Series.from_columns({"at": np.arange(3), "worker": np.zeros(3, np.int32), **beats})
    assert read_unmanaged(replace(trace, series=series)).tolist() == [200 * MB, 200 * MB]
    assert (read_unmanaged(trace) != MISSING).all()
