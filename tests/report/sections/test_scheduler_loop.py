from __future__ import annotations

import asyncio
from dataclasses import asdict, replace

from hypothesis import assume, given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.cluster.scheduler_loop import HOOK, STREAM, LoopBlock, LoopPart, SchedulerLoop
from dask_efficiency.accounts.profile import Frame
from dask_efficiency.plugin.scheduler.replies import Reply, packed
from dask_efficiency.report.facts import facts_of
from dask_efficiency.report.findings import find
from dask_efficiency.report.replies import _scheduler_loop, unpacked
from dask_efficiency.report.sections.culprits import holds
from dask_efficiency.report.sections.report import page
from dask_efficiency.report.sections.scheduler_loop import TITLE, scheduler_loop
from dask_efficiency.show.extent import PAGE
from tests.report.samples import causes, report_of, scheduler_loops, seconds

FINISHED = LoopPart(
    STREAM, "task-finished", "Scheduler.handle_task_finished", "/x/site-packages/distributed/scheduler.py", 6, 6.0, 900
)
BURNER = LoopPart(HOOK, "Burner.transition", "Burner.transition", "/home/me/burner.py", 6, 5.0, 4_000)
LOOP = SchedulerLoop(
    seconds=20.0,
    busy_seconds=8.0,
    lag_seconds=0.017,
    busy_with_work=0.75,
    gc_seconds=0.3,
    handlers_seconds=6.5,
    hooks_seconds=5.1,
    handlers=(FINISHED,),
    hooks=(BURNER,),
    blocks=(LoopBlock(1.2, (Frame("Burner.transition", "/home/me/burner.py", 8),)), LoopBlock(0.2, ())),
)


def held_up(loop: SchedulerLoop | None = LOOP, **fields: object) -> EfficiencyReport:
    """Two threads that waited 6 s for the scheduler, of 20 s."""
    given = {
        "cluster_seconds": 10.0,
        "window_seconds": 10.0,
        "causes_by_worker": {"w0": causes(**{"idle/scheduler": 5, "idle/graph": 1})},
        "tasks": {"succeeded": 1000},
        "nthreads": {"w0": 2},
        "scheduler_loop": loop,
    }
    return report_of(seconds(thread_cpu=14, idle=6), **given | fields)


def test_on_a_screen_a_line_says_how_busy_and_how_late_it_was_and_with_what() -> None:
    (line,) = scheduler_loop(held_up()).lines
    assert line == (
        "busy 75 % of the time with work; 8.0 s in all; what came waited 17 ms in the mean; garbage collection 300 ms; "
        "most in task-finished 6.0 s; of that, `Burner.transition` in burner.py:6 5.0 s"
    )


def test_a_page_has_handlers_and_hooks_by_their_time_folded() -> None:
    found = scheduler_loop(held_up(), PAGE)
    assert found.rows == (
        ("task-finished", "stream handler", "6.0 s", "75 %", "900", "scheduler.py:6"),
        ("Burner.transition", "hook of a plugin", "5.0 s", "62 %", "4000", "burner.py:6"),
    )
    assert any("The rest of the busy time, 1.5 s, went to messages" in str(block) for block in found.blocks)
    (shown,) = (one for one in page(held_up()).sections if one.title == TITLE)
    assert shown.folded


def test_a_report_in_which_it_was_not_measured_has_no_such_section() -> None:
    assert scheduler_loop(held_up(None)).blocks == scheduler_loop(held_up(None), PAGE).blocks == ()


def test_what_blocked_it_stands_with_what_blocked_workers() -> None:
    assert holds(held_up()).lines == (
        "blocked the scheduler's event loop for 1.2 s: `Burner.transition` in burner.py:8",
        "blocked the scheduler's event loop for 200 ms",
    )


def test_a_plugin_that_takes_most_of_it_is_named_with_its_line_instead_of_small_tasks() -> None:
    found = find(held_up())
    assert [one.kind for one in found] == ["idle/scheduler", "idle/graph"]
    assert {one.where for one in found} == {"hook of a plugin `Burner.transition` in burner.py:6"}
    assert found[0].advice == (
        "Do without it, or speed it up: it took 62 % of the scheduler's event loop, busy 75 % of the time."
    )


def test_where_tasks_themselves_keep_it_busy_the_handler_is_named() -> None:
    tasks = replace(LOOP, hooks=(replace(BURNER, seconds=1.0),))
    report = held_up(tasks, tasks={"succeeded": 10})
    assert find(report)[0].advice == (
        "Use fewer and longer tasks: the scheduler was busy 75 % of the time, most with task-finished."
    )
    assert facts_of(held_up(replace(tasks, busy_with_work=0.4))).scheduler_busy is False
    # A handler of the user's own is no traffic of tasks.
    own = replace(tasks, handlers=(replace(FINISHED, file="/home/me/own.py"),))
    assert find(held_up(own))[0].where == "stream handler `task-finished` in own.py:6"


def test_as_a_table_each_handler_and_hook_has_a_row() -> None:
    frame = held_up().to_frame("scheduler")
    assert frame.columns.tolist() == ["kind", "name", "function", "file", "line", "seconds", "calls"]
    assert frame.name.tolist() == ["task-finished", "Burner.transition"]
    assert held_up(None).to_frame("scheduler").empty


@given(scheduler_loops())
def test_it_is_read_as_it_was_sent(loop: SchedulerLoop) -> None:
    assume("\\ud800" not in repr(loop))  # names that are sent are text
    sent = unpacked(asyncio.run(packed(Reply({"notes": [], "loop": asdict(loop)}))))
    assert _scheduler_loop(sent["loop"]) == loop
