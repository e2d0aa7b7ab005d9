"""Bounds of savings: no promise that a cure cannot keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport, load_report
from dask_efficiency.report.bounds import bounded_saving, by_fewer_tasks, largest_saving, without_others
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.findings import find, headline
from dask_efficiency.report.lost_time import lost_time
from dask_efficiency.report.values import ClientRow, Saved
from dask_efficiency.show.finding import KNOWN, Basis, Finding
from tests.report.samples import causes, report_of, reports, seconds

FILES = sorted((Path(__file__).parents[1] / "data" / "diagnoses").glob("*.json"))
RECORDED = [path for path in FILES if not path.name.endswith(".known.json")]


def crowded(*, cpu: float, core: float = 0.0, gil: float = 0.0, **fields: Any) -> EfficiencyReport:
    """Four threads on two cores, for 10 s."""
    waits = causes(**{"thread-noncpu/core": core, "thread-noncpu/gil": gil})
    whole = seconds(thread_cpu=cpu, thread_noncpu=core + gil, idle=40.0 - cpu - core - gil)
    given: dict[str, Any] = {"by_prefix": {"f": whole}, "causes_by_worker": {"w0": waits}, "nthreads": {"w0": 4}}
    given |= {"causes_by_prefix": {"f": waits}, "cluster_seconds": 10.0, "window_seconds": 10.0, "cores": 2.0}
    return report_of(whole, **(given | fields))


def keeps_its_promises(report: EfficiencyReport) -> bool:
    """True if no bounded saving of a loss is more than its wall clock in the table of lost time."""
    bounded = [
        one for one in find(report) if one.basis is Basis.BOUNDED and one.lost_seconds and one.kind != "one-by-one"
    ]
    return all(one.saves_seconds <= one.lost_seconds / report.mean_threads * (1 + 1e-9) for one in bounded)


@given(reports)
def test_no_bounded_saving_is_more_than_its_loss_takes_of_the_wall_clock(report: EfficiencyReport) -> None:
    assert keeps_its_promises(report)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_nor_is_one_of_a_recorded_run_or_the_promise_that_others_leave(path: Path) -> None:
    report = load_report(path)
    assert keeps_its_promises(report)
    assert keeps_its_promises(replace(report, savings={}))
    waited = report.waiting.get("core", 0.0) / report.mean_threads
    assert (without_others(report) or 0.0) <= waited * (1 + 1e-9)


def test_others_have_their_share_of_the_waiting_for_cores_and_threads_of_ours_the_rest() -> None:
    # Others use 22 % of two cores: four threads have 78 % of them, and wait for the rest of the time.
    report = crowded(cpu=15.6, core=24.4, others_share=0.22)
    assert without_others(report) == pytest.approx(0.22 * 10.0)
    assert bounded_saving(report, "thread-noncpu/core", 24.4) == pytest.approx(2.2)
    (one,) = find(report)
    assert (one.saving, one.advice) == ("saves up to 2.2 s", "Find them: other processes use 22 % of these cores.")
    assert without_others(crowded(cpu=15.6, core=24.4, others_share=0.1)) is None
    assert without_others(crowded(cpu=4.0, core=6.0, others_share=0.7)) == pytest.approx(
        6.0 / 4
    )  # one thread at a time


def test_processes_save_nothing_where_the_cores_are_full() -> None:
    free, full = crowded(cpu=10.0, gil=28.0), crowded(cpu=19.5, gil=19.5)
    others = crowded(cpu=10.0, gil=28.0, others_share=0.45)
    assert [find(one)[0].saves_seconds for one in (free, full, others)] == [
        pytest.approx(5.0),
        None,
        pytest.approx(0.909, abs=0.01),
    ]
    assert [find(one)[0].advice.partition(":")[0] for one in (free, full, others)] == [
        "Use string[pyarrow] for text, or processes",
        "Make this code do less",
        "Make this code do less",
    ]
    assert [round(conditions_of(one).cores_used, 2) for one in (free, full, others)] == [0.5, 0.97, 0.95]


def test_what_others_use_of_the_cores_is_left_to_them_but_where_they_are_to_leave() -> None:
    report = crowded(cpu=8.0, others_share=0.5)
    assert (largest_saving(report, "spill"), largest_saving(report, "thread-noncpu/core")) == (2.0, 6.0)


def test_a_loss_whose_cure_saves_nothing_stays_a_finding_without_a_saving() -> None:
    report = crowded(cpu=10.0, gil=30.0)
    for saved in (Saved(0.0, 0.0, 0.4), Saved(0.2, 0.0, 0.9)):
        replayed = replace(report, savings={"thread-noncpu/gil": saved})
        (one,) = find(replayed)
        assert (one.saves_seconds, one.saves_interval, one.basis) == (None, None, Basis.UNKNOWN)
        assert one.saving == "30.0 s of thread time"
        assert headline(replayed) == "10.0 s, 25 % efficient (1 worker x 4 threads)"
    small = crowded(cpu=39.0, gil=1.0, cores=4.0)  # 2.5 % of the run
    assert find(small) == ()
    assert lost_time(small).parts


def test_of_tiny_tasks_what_the_client_does_for_each_is_saved_with_them() -> None:
    second = 1_000_000_000
    rows = [("send", 3, 2), ("release", 4, 4), ("build", 5, 5), ("wait", 6, 1)]
    client = tuple(ClientRow(activity, (), ns * second, idle * second, 0) for activity, ns, idle in rows)
    report = report_of(client=client)
    one = Finding(
        "small-tasks", "Too many small tasks", "", saves_seconds=2.0, basis=Basis.BOUNDED, evidence={KNOWN: 1.0}
    )
    larger = by_fewer_tasks(report, one, times=4, seconds=0.0001)
    assert (larger.saves_seconds, larger.evidence[KNOWN]) == (2.0 + 0.75 * 6, 1.0 + 0.75 * 6)
    assert by_fewer_tasks(report, one, times=4, seconds=0.01).saves_seconds == 2.0
    assert by_fewer_tasks(report, one, times=1, seconds=0.0001) is one
    unknown = replace(one, saves_seconds=None, basis=Basis.UNKNOWN)
    assert by_fewer_tasks(report, unknown, times=4, seconds=0.0001) is unknown
