import asyncio
from collections import defaultdict
from dataclasses import asdict, replace
from functools import partial

import pytest
from hypothesis import HealthCheck, assume, given, settings

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.cluster.scheduler_loop import HOOK, STREAM, LoopBlock, LoopPart, SchedulerLoop
from dask_efficiency.accounts.details import MAX_DEPTH
from dask_efficiency.accounts.facts import Facts
from dask_efficiency.accounts.lines import EVENT_LOOP, NO_CORE, Frame
from dask_efficiency.plugin.scheduler.replies import Reply, packed
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.culprits import MAX_CULPRITS
from dask_efficiency.report.findings import find
from dask_efficiency.report.replies import _loop, unpacked
from dask_efficiency.report.sections.culprits import (
    FRAME_LENGTH,
    LOOP_TITLE,
    MAX_BOXES,
    MIN_SHARE,
    boxes,
    culprits,
    flame_graph,
    holds,
    scheduler_loop,
)
from dask_efficiency.report.sections.report import page, sections
from dask_efficiency.report.stacks import sampled_stacks
from dask_efficiency.report.values import GilHolder, LongHold, ProfileRow
from dask_efficiency.show.document import PAGE, SCREEN, Box, Extent, Flames, Label
from dask_efficiency.show.drawn_buckets import OTHER_COLOUR
from dask_efficiency.show.figures import DETAIL_LENGTH as HELD_BY_LENGTH
from dask_efficiency.show.figures import FEW_ROWS, ROWS_ON_A_SCREEN
from tests.report.profile_samples import ETL, READ, UPPER, profiled, profiled_reports
from tests.report.samples import HOSTILE_NAMES, SECOND, anything, by_hand, causes, report_of, seconds


def test_a_screen_lists_the_largest_losses_with_lines_and_holders_of_the_gil_below() -> None:
    found = culprits(profiled())
    assert found.title == "Where the time goes"
    assert found.table.heads == ("lost to", "thread-s", "prefix", "line", "in")
    assert len(found.rows) == ROWS_ON_A_SCREEN
    assert found.rows[:4] == (
        ("thread-noncpu/gil", "6.00", "clean", "etl.py:88", "StringMethods.upper"),
        ("thread-noncpu/gil", "3.00", "clean", "etl.py:89", "StringMethods.split"),
        ("thread-noncpu/file", "3.00", "load", "etl.py:20", "BufferedReader.read"),
        ("idle/parallelism", "2.00", "clean", "-", "-"),
    )
    assert found.lines == (
        f"the {ROWS_ON_A_SCREEN} largest losses:",
        "while clean waited, the GIL was held most by `StringMethods.upper` in etl.py:88 (prefix clean)",
    )


def test_a_page_lists_all_with_holders_of_the_gil_and_meanings_of_causes() -> None:
    found = culprits(profiled(), PAGE)
    assert found.table.heads[-1] == "held by"
    assert [row[-1] for row in found.rows[:3]] == [*["`StringMethods.upper` in etl.py:88 (prefix clean)"] * 2, ""]
    assert len(found.rows) == 10
    cause = found.table.rows[0][0]
    assert isinstance(cause, Label)
    assert cause.hint.startswith("waited for Python's global interpreter lock")
    assert culprits(profiled(gil_holders=()), PAGE).table.heads[-1] == "in"


def test_a_report_without_samples_has_no_such_section_and_a_screen_no_flame_graph() -> None:
    assert culprits(by_hand()).blocks == ()
    assert not {"Where the time goes", "By cause and line"} & {part.title for part in sections(by_hand(), PAGE)}
    assert any(isinstance(block, Flames) for block in flame_graph(profiled(), PAGE).blocks)
    assert flame_graph(profiled()).blocks == flame_graph(profiled(profile=()), PAGE).blocks == ()


def test_the_longest_holds_and_blocks_are_named_and_short_ones_are_not() -> None:
    assert holds(profiled()).lines == (
        "held the GIL for 1.2 s: `StringMethods.upper` in etl.py:88 (prefix clean), on worker a",
        "blocked the event loop of worker b for 3.4 s: `BaseEventLoop.run_forever` in base_events.py:640",
    )
    assert holds(profiled(gil_holds=(), loop_blocks=(LongHold("b", EVENT_LOOP, (), 0.5),))).lines == (
        "blocked the event loop of worker b for 500 ms",
    )
    assert holds(by_hand()).blocks == ()
    assert holds(held_up()).lines == (
        "blocked the scheduler's event loop for 1.2 s: `Burner.transition` in burner.py:8",
        "blocked the scheduler's event loop for 200 ms",
    )
    many = tuple(LongHold("a", "clean", UPPER, 1.0 + i) for i in range(99))
    lines = holds(profiled(gil_holds=many, loop_blocks=())).lines
    assert [line.split(":")[0] for line in lines] == [f"held the GIL for {99 - i}.0 s" for i in range(FEW_ROWS)]


def test_what_held_the_gil_and_so_blocked_a_loop_is_listed_once() -> None:
    gil_holds = (LongHold("a", "clean", UPPER, 0.9), LongHold("b", EVENT_LOOP, READ, 0.8))
    blocks = (
        LongHold("a", "clean", UPPER, 1.0),
        LongHold("b", EVENT_LOOP, READ, 1.1),
        LongHold("b", "load", READ, 0.5),
        LongHold("b", "(thread pool-1)", READ, 0.4),
        LongHold("b", NO_CORE, (), 0.3),
    )
    assert holds(profiled(gil_holds=gil_holds, loop_blocks=blocks)).lines == (
        "held the GIL for 900 ms: `StringMethods.upper` in etl.py:88 (prefix clean), on worker a",
        "blocked the event loop of worker b for 1.1 s: `BufferedReader.read` in etl.py:20",
        "blocked the event loop of worker b for 500 ms: `BufferedReader.read` in etl.py:20 (prefix load)",
        "blocked the event loop of worker b for 400 ms: `BufferedReader.read` in etl.py:20 (thread pool-1)",
        "blocked the event loop of worker b for 300 ms: it waited for a core",
    )


def hostile() -> EfficiencyReport:
    """Every name in it tries to break out."""
    rows = tuple(
        ProfileRow("thread-noncpu", "gil", "clean", (Frame(name, f"/x/{name}.py", 5),), 5) for name in HOSTILE_NAMES
    )
    stack = tuple(Frame(name, f"/x/{name}", 1) for name in HOSTILE_NAMES[:7])
    return profiled(
        profile=rows,
        gil_holders=(GilHolder("clean", HOSTILE_NAMES[2], stack, 5),),
        gil_holds=tuple(LongHold(name, name, (Frame(name, ETL, 1),), 2.0) for name in HOSTILE_NAMES[2:7]),
        loop_blocks=(LongHold(HOSTILE_NAMES[5], EVENT_LOOP, stack, 2.0),),
        not_sampled={name: name for name in HOSTILE_NAMES},
        waited_for=dict.fromkeys(HOSTILE_NAMES, 1),
    )


@pytest.mark.parametrize("extent", [SCREEN, PAGE], ids=["screen", "page"])
def test_hostile_names_are_harmless_and_bounded(extent: Extent) -> None:
    for part in (culprits(hostile(), extent), holds(hostile(), extent)):
        assert part.blocks
        cells = [cell for row in part.rows for cell in row]
        for text in (*cells, *part.lines):
            assert text.isprintable()
            assert len(text) <= 500
        assert all(len(cell) <= HELD_BY_LENGTH for cell in cells)
        assert len(part.rows) <= MAX_CULPRITS
    shown = [ProfileRow("thread-cpu", "", name, (Frame(name, f"/x/{name}", 1),), 5) for name in HOSTILE_NAMES]
    for box in boxes(shown):
        assert box.name.isprintable()
        assert 0 < len(box.name) <= FRAME_LENGTH


def row(ns: int, *functions: str, cause: str = "gil", prefix: str = "clean") -> ProfileRow:
    stack = tuple(Frame(name, ETL, 1) for name in functions)
    return ProfileRow("thread-noncpu" if cause else "thread-cpu", cause, prefix, stack, ns)


def drawn(*rows: ProfileRow) -> list[tuple[int, str, int, int]]:
    return [(box.depth, box.name, box.left, box.ns) for box in boxes(rows)]


def test_the_boxes_of_a_report_are_those_worked_out_by_hand() -> None:
    found = boxes(sampled_stacks(profiled()))
    assert found[0] == Box("all tasks", "23.0 thread-seconds", 0, 23 * SECOND, 0, OTHER_COLOUR)
    assert [(box.depth, box.name, box.ns // SECOND) for box in found[1:7]] == [
        (1, "thread-noncpu/gil", 9),
        (2, "clean", 9),
        (3, "clean (etl.py:88)", 6),
        (4, "StringMethods.upper (accessor.py:1200)", 6),
        (5, "ObjectStringArrayMixin._str_map (object_array.py:90)", 6),
        (3, "clean (etl.py:89)", 3),
    ]
    assert found[3].hint == "6.0 thread-seconds, 26 % of all, 67 % of its cause"
    causes = " ".join(box.name.removeprefix("thread-noncpu/") for box in found if box.depth == 1)
    assert causes == "gil thread-cpu file library-threads core unknown"


def test_stacks_that_begin_alike_share_their_boxes_and_the_widest_stands_first() -> None:
    assert drawn(row(10, "f", "g"), row(30, "f", "h"), row(20, "f")) == [
        (0, "all tasks", 0, 60),
        (1, "thread-noncpu/gil", 0, 60),
        (2, "clean", 0, 60),
        (3, "f (etl.py:1)", 0, 60),
        (4, "h (etl.py:1)", 0, 30),
        (4, "g (etl.py:1)", 30, 10),
    ]


def test_thin_boxes_are_one_if_wide_together_and_otherwise_left_out() -> None:
    thin = [row(1, f"f{i}") for i in range(5)]
    assert drawn(row(995, "wide"), *thin)[3:] == [(3, "wide (etl.py:1)", 0, 995), (3, "(5 others)", 995, 5)]
    assert drawn(row(9995, "wide"), *thin)[3:] == [(3, "wide (etl.py:1)", 0, 9995)]


def test_many_stacks_and_deep_ones_make_few_boxes() -> None:
    wide = [row(1, *(f"f{i % 7**depth}" for depth in range(40))) for i in range(500)]
    assert len(boxes(wide)) == MAX_BOXES
    deep = boxes([row(1, *(f"f{i}" for i in range(100_000)))])
    assert max(box.depth for box in deep) == 2 + MAX_DEPTH


@given(profiled_reports())
def test_boxes_stay_within_the_one_above_and_no_two_overlap(report: EfficiencyReport) -> None:
    found = boxes(sampled_stacks(report))
    by_depth: dict[int, list[Box]] = defaultdict(list)
    for box in found:
        assert box.ns >= MIN_SHARE * found[0].ns
        if box.depth:
            outer = by_depth[box.depth - 1][-1]
            assert outer.left <= box.left
            assert box.left + box.ns <= outer.left + outer.ns
        row = by_depth[box.depth]
        if row:
            assert row[-1].left + row[-1].ns <= box.left
        row.append(box)


SCHEDULER = "/x/site-packages/distributed/scheduler.py"
FINISHED = LoopPart(STREAM, "task-finished", "Scheduler.handle_task_finished", SCHEDULER, 6, 6.0, 900)
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
    waited = {"w0": causes(**{"idle/scheduler": 5, "idle/graph": 1})}
    given = {"cluster_seconds": 10.0, "window_seconds": 10.0, "tasks": {"succeeded": 1000}, "nthreads": {"w0": 2}}
    whole = seconds(thread_cpu=14, idle=6)
    return report_of(whole, causes_by_worker=waited, scheduler_loop=loop, **given | fields)


def test_on_a_screen_the_event_loop_is_a_line_with_its_load_and_its_largest_uses() -> None:
    (line,) = scheduler_loop(held_up()).lines
    assert line == (
        "busy 75 % of the time with work; 8.0 s in all; messages waited 17 ms in the mean; garbage collection 300 ms; "
        "most in task-finished 6.0 s; of that, `Burner.transition` in burner.py:6 5.0 s"
    )
    handlers = tuple(replace(FINISHED, name=f"handler-{i}", seconds=4.0 - i) for i in range(4))
    (line,) = scheduler_loop(held_up(replace(LOOP, handlers=handlers, hooks=()))).lines
    assert line.endswith("; most in handler-0 4.0 s, handler-1 3.0 s, handler-2 2.0 s")


def test_a_page_and_a_frame_have_handlers_and_hooks_by_their_time() -> None:
    found = scheduler_loop(held_up(), PAGE)
    assert found.rows == (
        ("task-finished", "stream handler", "6.0 s", "75 %", "900", "scheduler.py:6"),
        ("Burner.transition", "hook of a plugin", "5.0 s", "62 %", "4000", "burner.py:6"),
    )
    assert any("The rest of the busy time, 1.5 s, is not known" in str(block) for block in found.blocks)
    (shown,) = (one for one in page(held_up()).sections if one.title == LOOP_TITLE)
    assert shown.folded
    frame = held_up().to_frame("scheduler")
    of_messages = ["of_prefix", "carries", "total_bytes", "median_bytes", "largest_bytes"]
    assert frame.columns.tolist() == ["kind", "name", "function", "file", "line", "seconds", "calls", *of_messages]
    assert frame.name.tolist() == ["task-finished", "Burner.transition"]


def test_a_report_without_an_account_of_the_event_loop_has_no_section_and_no_rows() -> None:
    assert scheduler_loop(held_up(None)).blocks == scheduler_loop(held_up(None), PAGE).blocks == ()
    assert held_up(None).to_frame("scheduler").empty


def test_a_plugin_that_takes_most_of_the_event_loop_is_named_once_instead_of_small_tasks() -> None:
    found = find(held_up())
    # Of the graphs it would be the same cure at the same place.
    assert [one.kind for one in found] == ["idle/scheduler"]
    assert {one.where for one in found} == {"hook of a plugin `Burner.transition` in burner.py:6"}
    assert found[0].advice == (
        "Do without it, or speed it up: it took 62 % of the scheduler's event loop, busy 75 % of the time."
    )


def test_an_event_loop_busy_with_tasks_has_its_handler_named() -> None:
    tasks = replace(LOOP, hooks=(replace(BURNER, seconds=1.0),))
    report = held_up(tasks, tasks={"succeeded": 10})
    text = "Use fewer and longer tasks: the scheduler was busy 75 % of the time, most with task-finished."
    assert find(report)[0].advice == text
    assert conditions_of(held_up(replace(tasks, busy_with_work=0.4))).scheduler_busy is False
    # A handler of the user's own is no traffic of tasks.
    own = replace(tasks, handlers=(replace(FINISHED, file="/home/me/own.py"),))
    assert find(held_up(own))[0].where == "stream handler `task-finished` in own.py:6"


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(anything(SchedulerLoop))
def test_an_account_of_the_event_loop_is_read_as_it_was_sent(loop: SchedulerLoop) -> None:
    assume("\\ud800" not in repr(loop))  # names that are sent are text
    sent = unpacked(asyncio.run(packed(Reply({"notes": [], "loop": asdict(loop)}, partial(Facts.of_views, {})))))
    assert _loop(sent["loop"]) == loop
