from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.schema import BLOCKED_BY, Blocked, Runs, Series
from dask_efficiency.simulation.model.disk import BANDWIDTH, LATENCY, Disk, read_disk, read_unmanaged, spill_moves

MB = 1_000_000


def full(limit: int) -> RunTrace:
    """Four results of 10 MB, one after the other, and then a task that needs each of them."""
    prefixes, inputs = ["make"] * 4 + ["use"] * 4, [[], [], [], [], [0], [1], [2], [3]]
    graph = Graph(prefixes, inputs, [10 * MS] * 8, [10 * MB] * 4 + [0] * 4, {*range(4, 8)})
    trace = simulate(graph, workers=1, nthreads=1)
    # No result is let go of, and tasks run in the order of their numbers.
    runs = trace.runs.columns()
    order = np.argsort(runs["task"])
    again = {name: column[order] if name == "task" else column for name, column in runs.items()}
    return replace(
        trace,
        runs=Runs.from_columns(again),
        transitions=trace.transitions.take(np.zeros(0, int)),
        workers=(replace(trace.workers[0], memory_limit=limit),),
    )


def test_nothing_is_moved_where_everything_fits() -> None:
    moves = spill_moves(full(100 * MB), [0])
    assert not any(getattr(moves, name).any() for name in moves.__slots__)


def test_what_was_used_longest_ago_is_written_and_read_back_as_it_is_needed() -> None:
    # 0.6 of 40 MB is room for two. The third pushes the first out, the fourth the second; then each comes back in turn
    # and pushes out the one that is needed last.
    moves = spill_moves(full(40 * MB), [0])
    assert moves.stored.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert moves.read.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert moves.pushed_bytes.tolist() == [0, 0, 0, 0, 10 * MB, 10 * MB, 10 * MB, 10 * MB]


def test_the_speed_of_a_disk_is_found_from_what_was_moved_and_how_long_it_took() -> None:
    trace, disk = full(40 * MB), Disk(write=100e6, read=50e6)
    moves = spill_moves(trace, [0])
    spill = moves.stored * LATENCY + moves.stored_bytes / disk.write * 1e9
    unspill = (moves.pushed + moves.read) * LATENCY
    unspill = unspill + moves.pushed_bytes / disk.write * 1e9 + moves.read_bytes / disk.read * 1e9
    columns = trace.runs.columns() | {"spill_ns": spill.astype(np.int64), "unspill_ns": unspill.astype(np.int64)}
    found = read_disk(replace(trace, runs=Runs.from_columns(columns)))
    assert found.write == pytest.approx(disk.write, rel=0.01)
    assert found.read == pytest.approx(disk.read, rel=0.01)
    # Event loops wrote and read for longer than runs waited for.
    seen = Disk(write=50e6, read=25e6)
    took = {"spill": 6 * (LATENCY + 10 * MB / 50e6 * 1e9), "unspill": 4 * (LATENCY + 10 * MB / 25e6 * 1e9)}
    table = {
        "worker": np.zeros(2, np.int32),
        "start": np.zeros(2, np.int64),
        "moving_ns": np.zeros(2, np.int64),
        "stop": np.array([*took.values()], np.int64),
        "cause": np.array([BLOCKED_BY.index(cause) for cause in took], np.int8),
    }
    found = read_disk(replace(trace, runs=Runs.from_columns(columns), blocked=Blocked.from_columns(table)))
    assert (found.write, found.read) == (pytest.approx(seen.write, 0.01), pytest.approx(seen.read, 0.01))


def test_a_run_that_never_spilled_says_nothing_of_the_disk() -> None:
    assert read_disk(full(100 * MB)) == Disk(BANDWIDTH, BANDWIDTH)


def test_unmanaged_memory_is_that_of_heartbeats_without_results_in_memory() -> None:
    trace = simulate(Graph(["a"], [[]], [MS], [1], {0}), workers=2, nthreads=1)
    beats = {"memory": [300e6, 420e6, 310e6], "managed": [100e6, 500e6, 110e6], "spilled": [0.0, 280e6, np.nan]}
    series = Series.from_columns({"at": np.arange(3), "worker": np.zeros(3, np.int32), **beats})
    assert read_unmanaged(replace(trace, series=series)).tolist() == [200 * MB, 200 * MB]
    assert (read_unmanaged(trace) != MISSING).all()
