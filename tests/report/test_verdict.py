import math
from dataclasses import replace

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.finding import Cause, Finding
from dask_efficiency.accounts.profile import Frame
from dask_efficiency.report import verdict as verdicts
from dask_efficiency.report.model import Culprit, Repeat
from dask_efficiency.report.profile import ProfileRow
from dask_efficiency.report.verdict import verdict
from dask_efficiency.runs.path.summary import PathSummary
from tests.report.samples import (
    by_hand,
    causes,
    gpu_totals,
    report_of,
    reports,
    seconds,
    waiting_for_the_gil,
    with_gpus,
)


def test_the_verdict_says_how_much_was_useful_how_fast_it_could_be_and_what_cost_most() -> None:
    # U / N = 14.2 / (22.9 / 5.7) = 3.53
    report = report_of(
        seconds(thread_cpu=14.2, spill=3.1, idle=2.9, thread_noncpu=2.7), cluster_seconds=5.7, window_seconds=5.7
    )
    assert verdict(report) == (
        "62 % efficient: 14.2 of 22.9 thread-seconds were useful; it took 5.7 s, ideally 3.5 s; "
        "the largest loss is spill, 3.1 thread-seconds; next is idle, 2.9 thread-seconds"
    )


def test_where_most_was_useful_its_line_is_named() -> None:
    update = (Frame("fit", "/home/me/etl.py", 8), Frame("Booster.update", "/site-packages/xgboost/core.py", 2051))
    rows = [ProfileRow("thread-cpu", "", "fit", update, 90), ProfileRow("thread-cpu", "", "fit", update[:1], 10)]

    def said(cpu: float, idle: float, ns: tuple[ProfileRow, ...]) -> str:
        whole = seconds(thread_cpu=cpu, idle=idle)
        return verdict(report_of(whole, by_prefix={"fit": seconds(thread_cpu=cpu)}, profile=ns)).split("; ")[0]

    useful = "90 % efficient: 9.0 of 10.0 thread-seconds were useful"
    assert said(9, 1, tuple(rows[:1])) == f"{useful}, most of them in `Booster.update` in etl.py:8 (prefix fit)"
    assert said(9, 1, tuple(rows)) == f"{useful}, most of them in `Booster.update` in etl.py:8 (prefix fit)"
    assert said(9, 1, ()) == useful
    assert said(4, 6, tuple(rows)) == "40 % efficient: 4.0 of 10.0 thread-seconds were useful"
    other = replace(rows[0], stack=(Frame("fit", "/home/me/etl.py", 9),))
    third = replace(rows[0], stack=(Frame("fit", "/home/me/etl.py", 10),))
    assert said(9, 1, (rows[0], other, third)) == useful


def test_the_verdict_of_a_priced_report_says_what_the_loss_is_worth() -> None:
    # 3.1 thread-seconds of a worker with one thread, at 139.35 an hour: 0.12
    report = report_of(seconds(thread_cpu=19.8, spill=3.1), price_per_worker_hour=139.35, nthreads={"w0": 1})
    assert verdict(report).endswith("the largest loss is spill, 3.1 thread-seconds, worth 0.120")


def test_the_verdict_says_how_much_the_gpus_were_idle() -> None:
    assert "; the GPUs were idle 65 % of the time; " in verdict(with_gpus())
    assert "; the GPU was idle 50 % of the time; " in verdict(with_gpus(gpu={"a": gpu_totals()}))
    # each worker sees its own work only
    assert "GPU" not in verdict(with_gpus(gpu={"a": gpu_totals(), "b": gpu_totals()}))


def test_much_running_time_is_said_and_no_ideal_is_promised() -> None:
    # 1 of 18 thread-seconds is more than one in twenty
    assert verdict(by_hand()) == (
        "59 % efficient: 10.0 of 17.0 thread-seconds were useful; "
        "it took 5.0 s: 4.5 s of work on the cluster and 500 ms on the client, mostly its upload; "
        "the largest loss is spill, 3.0 thread-seconds; 1.0 thread-seconds are still running"
    )


def test_nothing_recorded() -> None:
    assert verdict(report_of()) == "Nothing was recorded: the window holds no thread time"


def test_nothing_ran() -> None:
    expected = "Nothing ran: there was no work in any of 20.0 thread-seconds"
    assert verdict(report_of(seconds(no_work=20))) == expected


def test_nothing_has_ended() -> None:
    expected = "Too early to tell: 8.00 thread-seconds are still running and nothing has ended"
    assert verdict(report_of(seconds(running=8, no_work=1))) == expected


def test_nothing_was_measured_for_one_reason() -> None:
    report = report_of(
        seconds(unmeasured=10), seconds(unmeasured=10), not_measured={"w0": "package absent", "w1": "package absent"}
    )
    assert verdict(report) == "Nothing was measured: all of 20.0 thread-seconds are unmeasured (package absent)"


def test_nothing_was_useful() -> None:
    assert verdict(report_of(seconds(idle=3, failed=9))) == (
        "0 % efficient: none of 12.0 thread-seconds were useful; "
        "it took 5.0 s: 4.5 s of work on the cluster and 500 ms without work; "
        "the largest loss is failed, 9.0 thread-seconds"
    )


def test_nothing_was_lost() -> None:
    expected = "100 % efficient: all of 12.0 thread-seconds were useful; it took 4.5 s"
    assert verdict(report_of(seconds(thread_cpu=8, gpu=4), window_seconds=4.5)) == expected


def test_much_unmeasured_time_is_said_even_where_it_is_not_the_largest_loss() -> None:
    report = report_of(seconds(thread_cpu=6, idle=3, unmeasured=1))
    assert verdict(report).endswith("the largest loss is idle, 3.0 thread-seconds; 10 % was not measured")


def test_a_run_of_unknown_length_gets_no_runtime() -> None:
    for unknown in (0.0, float("nan"), float("inf")):
        said = verdict(report_of(seconds(thread_cpu=8, idle=4), cluster_seconds=unknown))
        assert said.endswith("were useful; the largest loss is idle, 4.0 thread-seconds")


def culprits(monkeypatch: pytest.MonkeyPatch, *found: Culprit) -> None:
    monkeypatch.setattr(verdicts, "find_culprits", lambda report: found)


HELD = "`Series.str.upper` in etl.py:88 (prefix clean)"
PATH = PathSummary("The makespan is 11.0 s: 70 % of it is tasks", 11.0, {}, 3.0, 1.0, 3.0)


def test_the_verdict_names_the_cause_the_line_the_size_what_to_do_and_what_it_saves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    culprits(
        monkeypatch,
        Culprit("idle", "parallelism", "clean", "", "", 17.0, "", ""),
        Culprit("thread-noncpu", "gil", "clean", "etl.py:90", "apply", 16.0, HELD, ""),
    )
    assert verdict(waiting_for_the_gil(path=PATH, without_largest_seconds=9.2)) == (
        "70 % of it is tasks; 39 % efficient: 34.0 of 88.0 thread-seconds were useful; it took 11.0 s, ideally 8.5 s, "
        "bound by 4 cores; the largest loss is waiting for the GIL, 17.2 thread-seconds, held by `Series.str.upper` in "
        "etl.py:88 (prefix clean): use string[pyarrow] for text, or processes (more workers with fewer threads each); "
        "in processes of one thread each it takes 9.2 s instead of 11.0 s; "
        "next is idle threads for lack of parallelism, 17.0 thread-seconds: "
        "split the tasks of clean, for which all waited, or run something beside them"
    )


def test_a_line_that_is_less_than_half_of_the_loss_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    culprits(monkeypatch, Culprit("thread-noncpu", "gil", "clean", "etl.py:90", "apply", 8.0, HELD, ""))
    assert f"17.2 thread-seconds, 8.0 of them held by {HELD}: use" in verdict(waiting_for_the_gil())


def test_the_line_of_another_cause_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    culprits(monkeypatch, Culprit("thread-noncpu", "core", "clean", "etl.py:90", "apply", 2.0, "", ""))
    assert "17.2 thread-seconds: use string[pyarrow]" in verdict(waiting_for_the_gil())


def test_what_all_waited_for_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    culprits(monkeypatch, Culprit("idle", "parallelism", "join", "", "", 6.0, "", ""))
    report = report_of(
        seconds(thread_cpu=4, idle=6),
        causes_by_worker={"w0": causes(**{"idle/parallelism": 6})},
        waited_for={"join": 1},
    )
    assert verdict(report).endswith(
        "the largest loss is idle threads for lack of parallelism, 6.0 thread-seconds: "
        "split the tasks of join, for which all waited, or run something beside them"
    )


def test_a_path_names_the_functions_of_joblibs_batches() -> None:
    path = PathSummary(
        "The makespan is 9.0 s: helps: a faster 'batch_of__fit_and_score_1_calls'", 9.0, {}, 3.0, 1.0, 3.0
    )
    assert verdict(waiting_for_the_gil(path=path)).startswith("Helps: a faster 'joblib: fit_and_score'; 39 %")


def test_a_path_does_not_ask_what_the_report_answers() -> None:
    asks = (
        "The makespan is 11.0 s: 87 % of it is tasks that are mostly off the CPU: see what 'clean' waits for: I/O, or"
    )
    path = PathSummary(asks, 11.0, {}, 3.0, 1.0, 3.0)
    said = "87 % of it is tasks that are mostly off the CPU"
    assert verdict(waiting_for_the_gil(path=path)).startswith(f"{said}; 39 % efficient")
    assert verdict(waiting_for_the_gil(path=path, causes_by_worker={})).startswith(f"{said}: see what 'clean' waits")


@pytest.mark.parametrize("without", [None, 10.9, 11.0, 12.0, math.nan])
def test_a_saving_that_is_not_known_or_within_the_error_of_simulations_is_not_said(without: float | None) -> None:
    assert "instead of" not in verdict(waiting_for_the_gil(without_largest_seconds=without))


def test_a_verdict_promises_one_thing_at_most() -> None:
    slow = Finding("a", "", Cause.SLOW_CPU, 2.0, 0.9, math.nan, 1.5, seconds_lost=4.0)
    said = verdict(waiting_for_the_gil(without_largest_seconds=5.0, stragglers=(slow,)))
    assert "without which the run is 4.0 s shorter" in said
    assert "instead of" not in said
    assert "it takes 5.0 s instead of 11.0 s" in verdict(
        waiting_for_the_gil(without_largest_seconds=5.0, stragglers=(replace(slow, seconds_lost=None),))
    )


def test_a_run_that_is_said_to_take_long_is_said_so_once() -> None:
    said = verdict(waiting_for_the_gil(path=PATH))
    assert "makespan" not in said
    assert said.count("11.0 s") == 1


def test_a_bucket_of_which_most_is_unknown_is_named_with_that() -> None:
    waiting = {"w0": causes(**{"thread-noncpu/unknown": 4.0, "thread-noncpu/gil": 1.0})}
    said = verdict(report_of(seconds(thread_cpu=5, thread_noncpu=5), causes_by_worker=waiting))
    assert said.endswith("thread-noncpu is 5.0 thread-seconds, and why threads waited is not known")


def test_a_cause_in_a_priced_report_is_worth_what_its_row_says() -> None:
    said = verdict(waiting_for_the_gil(price_per_worker_hour=3600.0))
    assert "waiting for the GIL, 17.2 thread-seconds, worth 4.30, in tasks of clean: use" in said


@given(reports)
def test_a_verdict_is_one_printable_line_for_any_report(report: EfficiencyReport) -> None:
    assert verdict(report).isprintable()
    assert len(verdict(report)) < 1_000


def test_tasks_that_were_computed_again_are_counted_where_they_are_many() -> None:
    again = {"sum": Repeat(tasks=3, times=4), "load": Repeat(tasks=1, times=2)}
    said = verdict(report_of(seconds(thread_cpu=1, idle=1), tasks={"succeeded": 10}, repeats=again))
    assert said.endswith("4 of 10 tasks made what had been made before, up to 4 times: persist() it")
    assert "persist" not in verdict(report_of(seconds(thread_cpu=1), tasks={"succeeded": 100}, repeats=again))
