from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.simulated_traces import MS
from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.schema import BLOCKED_BY
from dask_efficiency.simulation.model.cold_starts import MIN_NS, cold_starts
from dask_efficiency.simulation.model.overheads import overheads
from tests.runs.trace.samples import damaged_traces
from tests.simulation.cold_trace import COLD, cold_trace


@pytest.mark.parametrize("cause", [MISSING, BLOCKED_BY.index("computing"), BLOCKED_BY.index("call")])
def test_a_loop_that_stood_still_before_the_first_task_of_a_prefix_is_found(cause: int) -> None:
    trace = cold_trace(cause)
    found = cold_starts(trace)
    first = np.argmin(trace.runs.received)
    prefix = int(trace.tasks.prefix[trace.runs.task[first]])
    assert found.ns[0, prefix] == pytest.approx(COLD, abs=5 * MS)
    assert found.ns.sum() == found.ns[0, prefix]
    assert found.waited[first]


def test_a_cold_start_is_no_way_of_a_message() -> None:
    assert overheads(cold_trace()).to_worker.max() < COLD / 2
    assert overheads(cold_trace(BLOCKED_BY.index("gil"))).to_worker.max() > COLD / 2


def test_waiting_for_others_and_short_waits_are_no_cold_starts() -> None:
    for trace in (
        cold_trace(BLOCKED_BY.index("gil")),
        cold_trace(BLOCKED_BY.index("core")),
        cold_trace(ns=MIN_NS // 2),
    ):
        assert not cold_starts(trace).ns.any()


def test_a_later_task_of_the_same_prefix_is_large_and_not_cold() -> None:
    trace = cold_trace(run=19)
    assert not cold_starts(trace).ns.any()


@settings(max_examples=30)
@given(damaged_traces())
def test_no_trace_breaks_it(trace: RunTrace) -> None:
    found = cold_starts(trace)
    assert (found.ns >= 0).all()
    assert len(found.waited) == len(trace.runs)
