from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.simulated_traces import MS, Graph, simulate
from dask_efficiency import EfficiencyReport, RunTrace
from dask_efficiency.report.saving import saving
from dask_efficiency.trace.schema import Runs
from tests.replay.test_replay import NO_DELAYS
from tests.report.samples import causes, report_of, seconds

SECOND_NS = 1000 * MS


def four_tasks(**settings: Any) -> RunTrace:
    """Four tasks of a second on two slots: two seconds."""
    graph = Graph(["clean"] * 4, [[]] * 4, [SECOND_NS] * 4, [1] * 4, set(range(4)))
    return simulate(graph, **({"workers": 1, "nthreads": 2, "saturation": 2.0} | NO_DELAYS | settings))


def waiting(cause: str, waited: float = 3.0, **fields: Any) -> EfficiencyReport:
    """Of the four seconds of :func:`four_tasks`, the tasks waited for some."""
    whole, row = seconds(thread_cpu=4 - waited, thread_noncpu=waited), causes(**{f"thread-noncpu/{cause}": waited})
    given: dict[str, Any] = {
        "by_prefix": {"clean": whole},
        "causes_by_worker": {"w0": row},
        "causes_by_prefix": {"clean": row},
        "cluster_seconds": 2.0,
        "trace": four_tasks(),
    }
    return report_of(whole, **(given | fields))


def test_tasks_that_waited_for_three_quarters_of_their_time_take_a_quarter_of_it() -> None:
    # Two after the other on each slot: 0.5 s instead of 2 s. The rest is 11 ms of the client's, with 1 % of noise.
    assert saving(waiting("gil")) == pytest.approx(0.5, abs=0.03)


def test_no_run_is_promised_that_the_cores_do_not_allow() -> None:
    # The useful second takes one second on one core, whatever lets go of the GIL; more cores take less.
    assert saving(waiting("gil", cores=1.0)) == 1.0
    assert saving(waiting("core", cores=1.0)) == pytest.approx(0.5, abs=0.03)
    assert saving(waiting("throttled", cores=1.0)) == pytest.approx(0.5, abs=0.03)


def test_a_cause_takes_from_each_prefix_what_it_had_there() -> None:
    # Two prefixes on a slot each, of 2 s: one waited for all of its time, the other not at all.
    graph = Graph(["clean", "load"], [[], []], [2 * SECOND_NS] * 2, [1, 1], {0, 1})
    trace = simulate(graph, workers=1, nthreads=2, saturation=2.0, **NO_DELAYS)
    rows = {"clean": causes(**{"thread-noncpu/sleep": 2.0}), "load": {}}
    report = waiting(
        "sleep",
        2.0,
        trace=trace,
        by_prefix={"clean": seconds(thread_noncpu=2), "load": seconds(thread_cpu=2)},
        causes_by_prefix=rows,
    )
    assert saving(report) is None, "the other task takes as long as before"


def test_spilling_and_transfers_and_the_schedulers_own_time_are_parts_of_a_replay() -> None:
    trace = four_tasks(spill=SECOND_NS)
    without = saving(report_of(seconds(thread_cpu=4, spill=4), trace=trace, cluster_seconds=4.0))
    assert without == pytest.approx(2.0, abs=0.05)
    slow = four_tasks(scheduler_task=400 * MS)
    by_cause = {"w0": causes(**{"idle/scheduler": 4})}
    assert saving(report_of(seconds(thread_cpu=4, idle=4), causes_by_worker=by_cause, trace=slow)) is not None


def test_of_a_long_trace_nobody_waits_for_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask_efficiency.report.saving.MAX_RUNS", 3)
    assert saving(waiting("gil")) is None


@pytest.mark.parametrize(
    "report",
    [
        waiting("gil", trace=None),
        waiting("gil", causes_by_prefix={}),
        waiting("gil", causes_by_worker={}),
        waiting("gil", trace=replace(four_tasks(), runs=Runs.empty())),
        report_of(seconds(thread_cpu=4, failed=4), trace=four_tasks()),
        report_of(seconds(thread_cpu=4), trace=four_tasks()),
        report_of(
            seconds(thread_cpu=1, idle=4), causes_by_worker={"w0": causes(**{"idle/graph": 4})}, trace=four_tasks()
        ),
    ],
    ids=["no trace", "no prefixes", "no causes", "empty trace", "failed", "no loss", "graph"],
)
def test_what_a_replay_cannot_know_is_none(report: EfficiencyReport) -> None:
    assert saving(report) is None
