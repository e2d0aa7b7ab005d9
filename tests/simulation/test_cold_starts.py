from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import RunTrace
from dask_efficiency.simulation.cold_starts import MIN_NS, cold_starts
from dask_efficiency.simulation.overheads import overheads
from dask_efficiency.trace.schema import BLOCKED_BY, Blocked, Runs
from dask_efficiency.trace.tables import MISSING
from tests.trace.samples import damaged_traces

COLD = 700 * MS


def recorded(cause: int = MISSING, ns: int = COLD, run: int = 0) -> RunTrace:
    """Tasks of two prefixes on one worker; its loop stood still before it read one of them."""
    graph = Graph(["a"] * 10 + ["b"] * 10, [[]] * 20, [10 * MS] * 20, [1] * 20, set(range(20)))
    trace = simulate(graph, workers=1, nthreads=1)
    # Ways of 1 ms, one after the other; from that run on everything is later.
    columns = trace.runs.columns()
    place = np.argsort(np.argsort(columns["received"]))
    for name in ("received", "ready", "executing", "submitted", "start", "stop", "ended", "reported"):
        columns[name] = columns[name] + np.where(place >= run, ns, 0)
    columns["assigned"] = columns["assigned"] + np.where(place > run, ns, 0)
    stop = int(columns["received"][np.argsort(place)[run]])
    blocked = {"worker": [0], "start": [stop - ns], "stop": [stop + MS], "moving_ns": [ns], "cause": [cause]}
    return replace(trace, runs=Runs(**columns), blocked=Blocked.from_columns(blocked))


@pytest.mark.parametrize("cause", [MISSING, BLOCKED_BY.index("computing"), BLOCKED_BY.index("call")])
def test_a_loop_that_stood_still_before_the_first_task_of_a_prefix_is_found(cause: int) -> None:
    trace = recorded(cause)
    found = cold_starts(trace)
    first = np.argmin(trace.runs.received)
    prefix = int(trace.tasks.prefix[trace.runs.task[first]])
    assert found.ns[0, prefix] == pytest.approx(COLD, abs=5 * MS)
    assert found.ns.sum() == found.ns[0, prefix]
    assert found.waited[first]


def test_a_cold_start_is_no_way_of_a_message() -> None:
    assert overheads(recorded()).to_worker.max() < COLD / 2
    assert overheads(recorded(BLOCKED_BY.index("gil"))).to_worker.max() > COLD / 2


def test_waiting_for_others_and_short_waits_are_no_cold_starts() -> None:
    for trace in (recorded(BLOCKED_BY.index("gil")), recorded(BLOCKED_BY.index("core")), recorded(ns=MIN_NS // 2)):
        assert not cold_starts(trace).ns.any()


def test_a_later_task_of_the_same_prefix_is_large_and_not_cold() -> None:
    trace = recorded(run=19)
    assert not cold_starts(trace).ns.any()


@settings(max_examples=30)
@given(damaged_traces())
def test_no_trace_breaks_it(trace: RunTrace) -> None:
    found = cold_starts(trace)
    assert (found.ns >= 0).all()
    assert len(found.waited) == len(trace.runs)
