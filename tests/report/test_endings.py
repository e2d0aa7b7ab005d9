"""Findings of tasks that failed, were given up, never ended, or were outstanding."""

from dataclasses import replace
from typing import Any

import pytest

from dask_efficiency import EfficiencyReport
from dask_efficiency.report.endings import ENDINGS, endings
from dask_efficiency.report.findings import find, headline, leading
from dask_efficiency.report.kinds import BESIDE
from dask_efficiency.report.sections.report import context
from dask_efficiency.report.turnover import LostWorker
from dask_efficiency.report.values import Failure, Unfinished
from tests.report.samples import report_of, seconds

FAILED = Failure("parse", "ZeroDivisionError('division by zero')", "etl.py:6", 2)
KILLED = Failure("combine", "KilledWorker (4 workers died)", "", 1)
TOO_LARGE = (
    "MemoryError(\"Task 'concat-1' has 534.06 MiB worth of input dependencies, but worker tcp://a has memory_limit set "
    'to 381.47 MiB. It seems like you called client.compute() on a huge collection.")'
)
REFUSED = Failure("concat", TOO_LARGE, "", 1)
FOR_MEMORY = LostWorker("1", "killed by its nanny at 96% of its memory limit", False, 0, {}, 0, 0)
HANGS = Unfinished("for_event", 1, {"0": 1}, {}, 12.5)
WAITS = Unfinished("add", 63, {"0": 2}, {}, 0.2)


def of_a_block(**fields: Any) -> EfficiencyReport:
    """A block of 13 s, of which idle threads and sleeping tasks cost much, and 20 tasks ended."""
    given = {"cluster_seconds": 13.0, "window_seconds": 13.0, "tasks": {"succeeded": 20}, "nthreads": {"w": 4}}
    rows = seconds(thread_cpu=4, thread_noncpu=10, idle=20, running=16.7)
    return report_of(rows, **{**given, "phases": {"run": 13.0}, **fields})


def first(report: EfficiencyReport) -> tuple[str, str]:
    one = find(report)[0]
    assert one.saves_seconds is None
    return one.lines


def kinds(report: EfficiencyReport) -> list[str]:
    return [one.kind for one in find(report)]


def test_each_ending_is_a_kind_without_a_saving() -> None:
    assert set(ENDINGS) <= BESIDE.keys()


def test_what_failed_comes_first_with_error_tasks_and_line() -> None:
    report = of_a_block(failures=(replace(FAILED, tasks=1, error="ValueError()"), FAILED))
    assert first(report) == (
        "Tasks failed. ZeroDivisionError('division by zero') in 2 tasks of parse, etl.py:6, and 1 more error",
        "Mend that first: nothing that needs their results ran.",
    )
    assert "idle" in kinds(report)  # the block went on
    assert headline(report) == "13.0 s; 3 tasks failed (1 worker x 4 threads)"
    ended = replace(report, ended_by="ZeroDivisionError: division by zero")
    assert headline(ended) == "13.0 s, until ZeroDivisionError (1 worker x 4 threads)"
    assert "idle" not in kinds(ended)


def test_tasks_that_were_tried_again_and_failed_each_time_say_how_often() -> None:
    report = of_a_block(failures=(replace(FAILED, tasks=2),), tasks={"succeeded": 18, "failed": 22})
    said = "Catch it in the task, or pass fewer retries=: 22 attempts failed, and each took its time."
    assert first(report)[1] == said
    once = replace(report, tasks={"succeeded": 18, "failed": 5})
    assert first(once)[1].startswith("Mend that first")


def test_killed_workers_come_first_and_explain_the_idle_threads() -> None:
    report = of_a_block(failures=(KILLED,), lost_workers=(FOR_MEMORY,), ended_by="KilledWorker: ...")
    assert first(report) == (
        (
            "Workers died, and their tasks were given up. KilledWorker (4 workers died) in 1 task of combine; "
            "worker 1 was lost (killed by its nanny at 96% of its memory limit): its memory was not measured"
        ),
        "Give workers more memory, or make partitions smaller: workers were killed for lack of memory.",
    )
    assert kinds(report) == ["killed-worker", "thread-noncpu"]
    crashed = replace(report, lost_workers=(replace(FOR_MEMORY, reason="exited with status 3"),))
    assert first(crashed)[1].startswith("See why these workers died")


def test_a_refused_computation_says_what_was_too_large() -> None:
    report = of_a_block(failures=(REFUSED,), ended_by="MemoryError: Task ...")
    assert first(report) == (
        (
            "A task's input is larger than a worker's memory. 1 task of concat: 534.06 MiB of input, and a memory "
            "limit of 381.47 MiB"
        ),
        "Reduce or slice it before one task takes it all, write it to storage, or give workers more memory.",
    )
    assert "idle" not in kinds(report)


def test_a_refused_task_that_others_need_is_told_likewise() -> None:
    said = (
        "MemoryError('Task x has 0.90 GiB worth of input dependencies, but worker x has memory_limit set to 0.50 GiB.')"
    )
    report = of_a_block(failures=(replace(REFUSED, error=said),), ended_by="MemoryError: Task ...")
    assert first(report)[0].endswith("0.90 GiB of input, and a memory limit of 0.50 GiB")


def test_an_error_before_any_work_is_named() -> None:
    report = replace(report_of(seconds(no_work=3)), ended_by="ValueError: x")
    assert headline(report).endswith(", until ValueError")


def test_what_never_ended_comes_first_where_a_block_is_interrupted() -> None:
    report = of_a_block(unfinished=(HANGS,), ended_by="KeyboardInterrupt")
    assert first(report) == (
        "1 task had not ended. 1 task of for_event, running for 12.5 s on worker 0",
        "See what they wait for: client.call_stack() shows it while they run.",
    )
    assert "idle" not in kinds(report)
    assert context(report).endswith("tasks: 20 succeeded, 1 outstanding")
    shown = report.first_screen.figure
    assert shown is not None
    assert any(part.bucket == "running" for part in shown.parts)


def test_the_findings_of_the_time_until_an_interruption_stay_where_tasks_went_on() -> None:
    report = of_a_block(unfinished=(WAITS,), ended_by="KeyboardInterrupt")
    assert first(report) == (
        "63 tasks had not ended. 63 tasks of add, running for 200 ms on worker 0",
        "This report is of the time until then: what follows may be different.",
    )
    assert "idle" in kinds(report)
    assert kinds(replace(report, unfinished=(replace(WAITS, running={}),)))[0] == "never-ended"


def test_a_block_that_ends_before_its_work_has_that_as_its_only_finding() -> None:
    report = of_a_block(unfinished=(WAITS, Unfinished("sum", 1, {}, {}, 0.0)))
    (only,) = find(report)
    assert only.lines[0].startswith("64 tasks were outstanding when the block ended. 63 tasks of add")
    assert only.lines[1].startswith("Wait for them in it")
    assert headline(report) == "13.0 s; 64 tasks outstanding (1 worker x 4 threads)"
    one_left = replace(report, unfinished=(Unfinished("sum", 1, {}, {}, 0.0),), tasks={"succeeded": 1000})
    assert "outstanding" not in kinds(one_left)
    assert "1 outstanding" in context(one_left)


def test_tasks_of_paused_workers_are_named_also_in_retrospect() -> None:
    stuck = of_a_block(unfinished=(Unfinished("hold", 1, {}, {"1": 1}, 0.0),), phases={})
    assert first(stuck)[0] == "Tasks wait on paused workers. 1 task of hold on worker 1"
    assert "idle" not in kinds(stuck)


@pytest.mark.parametrize("ended_by", ["", "ValueError: no"])
def test_without_such_tasks_there_is_no_such_finding(ended_by: str) -> None:
    report = of_a_block(ended_by=ended_by)
    assert endings(report) == []
    assert ("until ValueError" in headline(report)) is bool(ended_by)
    assert leading(report)[0].kind == "idle"


def test_a_user_s_words_are_harmless() -> None:
    report = of_a_block(failures=(replace(FAILED, error="\x1b[31m" + "x" * 400, prefix="<b>\n"),))
    assert "\x1b" not in first(report)[0]
    assert len(first(report)[0]) < 300
