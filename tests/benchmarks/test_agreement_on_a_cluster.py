"""Dask's own figures of a run beside ours, of the same run.

In a task's thread one clock is read inside the other, so that one figure is at most the other however busy the machine
is; the thread's CPU time agrees to 1 % where tasks have 50 ms of it, as those that are retried. What both read in the
event loop agrees to 1 %: where they are busy, both are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster

from benchmarks.agreement import (
    IN_THE_THREAD,
    MAX_WITHOUT_CAUSE,
    SPILL_LABELS,
    SPILLING,
    WORKLOADS,
    Figures,
    is_cpu,
    is_in_the_thread,
    measured,
    missing_ns,
    without_cause,
)
from dask_efficiency.accounts.buckets import Bucket
from tests.plugin.watch import CLOCKS

pytestmark = pytest.mark.cluster

SCALE = 0.1
#: Seconds of CPU that Dask takes in a task's thread for each run outside its own clocks and inside ours: 0.1 ms here,
#: and 0.3 ms with ten busy processes for each core.
AROUND_A_RUN = 0.0005
#: Seconds of the event loop for each run between our reading and Dask's, in the same stimulus; 0.1 ms here.
IN_A_STIMULUS = 0.001


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One cluster for all workloads, whose workers spill early."""
    options = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": ":0", "silence_logs": False}
    with dask.config.set(SPILLING), LocalCluster(memory_limit="1 GiB", **options) as cluster:
        yield cluster


def figures_of(client: Client, name: str, folder: Path) -> Figures:
    """What both say of a workload; Dask's scheduler says the same as its span."""
    program = WORKLOADS[name]
    for module in program.needs:
        pytest.importorskip(module)
    figures = measured(client, name, program.prepare(client, folder, SCALE))
    assert figures.dasks.keys() == figures.by_span.keys()
    for prefix, row in figures.by_span.items():
        assert {label: figures.dasks[prefix].get(label, 0.0) for label in row} == pytest.approx(row, abs=1e-4)
    return figures


def runs(figures: Figures) -> int:
    return sum(figures.report.tasks.values())


def assert_between(least: float, ours: float, most: float) -> None:
    """One clock steers faster than another, by less than 0.1 %."""
    assert 0.999 * least - CLOCKS <= ours <= 1.001 * most + CLOCKS


def assert_both_held_as_long(figures: Figures) -> None:
    """Slots are held from the stimulus in which a task begins to the one in which it ends, by both accounts."""
    slack = CLOCKS + IN_A_STIMULUS * runs(figures)
    assert figures.of_ours() + figures.seceded == pytest.approx(figures.of_dasks(), rel=0.01, abs=slack)
    # What a shuffle stops to have it run elsewhere is cancelled to Dask.
    stopped = {"failed": 0.0, "cancelled": figures.rescheduled}
    for outcome, seconds in stopped.items():
        ours = figures.of_ours(outcome) + seconds
        assert ours == pytest.approx(figures.of_dasks(outcome.__eq__), rel=0.01, abs=slack)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("groupby_shuffle", "p2p-get-output-cpu"),
        ("merge", "p2p-get-output-cpu"),
        ("parquet", "thread-cpu"),
        ("parquet_shuffled", "p2p-get-output-cpu"),
        ("rechunk", "p2p-get-output-cpu"),
        ("tensordot", "thread-cpu"),
        ("bag", "thread-cpu"),
        ("spill", "disk-read"),
        ("retry", "failed"),
        ("climatology", "thread-cpu"),
        ("xgboost_train", "thread-cpu"),
    ],
)
def test_a_report_agrees_with_dasks_fine_metrics_and_spans(client, name, label, tmp_path):
    figures = figures_of(client, name, tmp_path)
    report = figures.report
    assert figures.of_dasks(label.__eq__) > 0  # it did what it is here for
    again = 8 if name == "xgboost_train" else 0  # chunks are made once more for the predictions: the same tasks to Dask
    assert report.tasks["succeeded"] == figures.succeeded + again
    assert set(figures.ours) == set(figures.dasks)
    assert {threads for _, _, threads in figures.intervals} == {sum(report.nthreads.values())}

    cpu, around = figures.of_dasks(is_cpu), AROUND_A_RUN * figures.succeeded
    # What is metered in tasks is taken out of Dask's CPU time, though only a part of it was CPU time.
    assert_between(cpu, figures.of_ours(Bucket.THREAD_CPU), cpu + figures.metered + around)

    inside, executor = figures.of_dasks(is_in_the_thread), figures.of_dasks("executor".__eq__)
    assert_between(inside, figures.of_ours(*IN_THE_THREAD), inside + executor)
    assert_between(sum(figures.computing.values()), figures.of_ours(*IN_THE_THREAD), inside + executor)

    spill = figures.of_dasks(SPILL_LABELS.__contains__)
    assert_between(spill, figures.of_ours(Bucket.SPILL), spill + executor + figures.of_dasks("other".__eq__))
    assert_both_held_as_long(figures)
    assert missing_ns(client, report) == 0
    if label.startswith("p2p-"):
        assert figures.shuffled > 0
        assert report.moved["shuffled"].nbytes == pytest.approx(figures.shuffled, abs=len(report.by_worker))
    if name == "retry":  # a single prefix, which no sampler misses in seconds of CPU time
        assert sum(without_cause(report).values()) <= MAX_WITHOUT_CAUSE


@pytest.mark.parametrize("name", ["seceding", "joblib_search"])
def test_dask_counts_the_threads_of_seceded_tasks_in_which_others_run(client, name, tmp_path):
    figures = figures_of(client, name, tmp_path)
    assert figures.seceded > 0
    assert figures.of_ours() <= figures.report.breakdown.total
    assert_both_held_as_long(figures)


def test_dask_takes_a_label_of_the_users_out_of_the_cpu_time_of_the_task(client, tmp_path):
    figures = figures_of(client, "labels", tmp_path)
    ours, dasks = figures.of_ours(Bucket.THREAD_CPU), figures.of_dasks(is_cpu)
    assert dasks < ours / 2
    assert_between(dasks, ours, dasks + figures.metered + AROUND_A_RUN * runs(figures))
    inside = figures.of_dasks(is_in_the_thread)
    assert_between(inside, figures.of_ours(*IN_THE_THREAD), inside + figures.of_dasks("executor".__eq__))
    assert_both_held_as_long(figures)
