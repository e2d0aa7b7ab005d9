import json
import os
import sysconfig
from collections import Counter
from dataclasses import astuple, replace

import dask
import distributed
import pytest
from hypothesis import given

import dask_efficiency
from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import GOOD
from dask_efficiency.accounts.lines import (
    BUILT_IN,
    EVENT_LOOP,
    LOOKS,
    NOWHERE,
    WAITING,
    Frame,
    blamed,
    caller,
    is_import,
    is_the_users,
    place_of,
)
from dask_efficiency.report.computing import own_line
from dask_efficiency.report.culprits import MAX_CULPRITS, LineTime, find_culprits, holder_text, line_times, place_text
from dask_efficiency.report.files import from_dict
from dask_efficiency.report.findings import find
from dask_efficiency.report.stacks import exact_stacks, exact_times
from dask_efficiency.report.values import GilHolder, LockLook, ProfileRow
from tests.accounts.test_waits import XARRAY
from tests.report.profile_samples import ARROW, CLEAN, ETL, LOOP, PANDAS, UPPER, profiled, profiled_reports
from tests.report.samples import SECOND, by_hand, causes, report_of, seconds

SCRIPTS = sysconfig.get_path("scripts")
USERS = (
    *(ETL, r"C:\Users\me\project\etl.py", "etl.py", "/home/me/lib/etl.py", "/home/me/python/lib/etl.py"),
    *("/home/me/Lib/pythonic/etl.py", "/tmp/ipykernel_12/3456.py", "<ipython-input-3-aa>", "<stdin>"),
    *("<dynamic-code>", "<string>", __file__, os.path.join(SCRIPTS, "job.py")),
)
NOT_USERS = (
    *("", f"{PANDAS}/accessor.py", "/usr/lib/python3/dist-packages/numpy/core.py"),
    *("/opt/conda/lib/python3.12/threading.py", "/usr/lib64/python3.13t/threading.py"),
    *("/x/python312.zip/json/decoder.py", r"C:\Python312\Lib\threading.py", r"C:\env\Lib\site-packages\pandas\io.py"),
    *("<frozen importlib._bootstrap>", "<__array_function__ internals>", os.__file__, dask.__file__),
    *(distributed.__file__, dask_efficiency.__file__, os.path.join(SCRIPTS, "dask-efficiency")),
)


@pytest.mark.parametrize("file", [*USERS, *NOT_USERS])
def test_the_users_own_code_is_known_by_its_path(file: str) -> None:
    assert is_the_users(file) is (file in USERS)


def test_a_stack_is_put_down_to_the_users_innermost_line_and_its_callee() -> None:
    assert blamed(UPPER) == Frame("StringMethods.upper", ETL, 88)
    inner = Frame("helper", ETL, 7)
    assert blamed((CLEAN, UPPER[1], inner)) == inner
    assert blamed((CLEAN, UPPER[1], inner, UPPER[2])) == Frame(UPPER[2].function, ETL, 7)
    # without the user's code, to its own innermost line
    assert blamed(ARROW) == ARROW[0]
    assert blamed((*LOOP, ARROW[0])) == ARROW[0]
    # which is the outermost of its library, of which the standard library and Dask are none if there is another
    merge, hashes = (Frame(name, f"{PANDAS}/{name}.py", 3) for name in ("merge", "hashes"))
    of_dask = [Frame(name, "/env/site-packages/dask/array/core.py", 9) for name in ("getter", "take")]
    assert blamed((of_dask[0], merge, hashes, LOOP[0])) == merge
    assert blamed((of_dask[0], of_dask[1], LOOP[0])) == of_dask[0]
    assert blamed((LOOP[0], *of_dask)) == of_dask[0]
    # a nested function is named without what it is nested in
    nested = Frame("create_assign.<locals>.assign", "/env/site-packages/dask/dataframe/_merge.py", 823)
    assert blamed((nested, LOOP[0])) == nested._replace(function="assign")
    # C code is named where it says more than the cause
    for name, function in (("execute", "execute"), ("acquire", "clean"), ("sleep", "clean")):
        assert blamed((CLEAN, Frame(name, BUILT_IN, 0))) == CLEAN._replace(function=function)
        assert blamed((merge, Frame(name, BUILT_IN, 0))) == merge
    assert blamed(()) == NOWHERE
    # a function that travels by value is the user's own unless it may be a library's
    update = Frame("Booster.update", "/usr/lib/python3.12/site-packages/xgboost/core.py", 2051)
    waits = Frame("Event.wait", "/usr/lib/python3.12/threading.py", 655)
    reads = Frame("sync", "/env/site-packages/fsspec/asyn.py", 98)
    assert blamed((reads, waits)) == reads
    own = Frame("clean", "<dynamic-code>", 9)
    assert blamed((own, update)) == Frame("Booster.update", "<dynamic-code>", 9)
    assert blamed((own._replace(function="train.<locals>.fn"), update)) == update
    # a decorator's wrapper is no callee; as pandas has it
    wrapper = Frame("forbid_nonstring_types.<locals>._forbid.<locals>.wrapper", f"{PANDAS}/accessor.py", 137)
    assert blamed((CLEAN, wrapper, *UPPER[1:])).function == "StringMethods.upper"
    assert blamed((CLEAN, wrapper)).function == wrapper.function
    own = Frame("make.<locals>.clean", ETL, 9)
    assert blamed((wrapper, own)) == own


def test_code_that_runs_as_a_module_is_imported_is_an_import() -> None:
    machinery = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1165)
    module = Frame("<module>", "/usr/lib/python3.12/site-packages/xgboost/__init__.py", 9)
    assert blamed((CLEAN, machinery, module)) == Frame("import", ETL, CLEAN.line)
    assert blamed((*LOOP, machinery, module)) == LOOP[-1]._replace(function="import")
    assert blamed((machinery, module)) == NOWHERE._replace(function="import")
    generated = Frame("<module>", "<string>", 1)
    assert blamed((CLEAN, machinery, module, generated, machinery)) == Frame("import", ETL, CLEAN.line)
    # a module of the user's own is where the user's line is
    own = Frame("<module>", ETL, 3)
    assert blamed((CLEAN, machinery, own)) == own
    assert blamed((CLEAN, machinery, own, machinery, module, machinery)) == own._replace(function="import")
    assert [is_import(stack) for stack in ((CLEAN, machinery, own), (CLEAN, own), ())] == [True, False, False]


def test_a_line_is_in_words() -> None:
    assert place_of(CLEAN) == "etl.py:88"
    assert place_of(Frame("f", r"C:\me\etl.py", 3)) == "etl.py:3"
    assert place_of(Frame("f", "<stdin>", 1)) == "<stdin>:1"
    assert place_of(NOWHERE) == ""


def test_stacks_of_one_line_are_one() -> None:
    report = profiled(profile=(*profiled().profile[:2], ProfileRow("thread-noncpu", "gil", "clean", UPPER[:2], 300)))
    gil = [each for each in line_times(exact_stacks(report)) if each.cause == "gil"]
    # 200 + 300 of 600, and 100
    assert gil == [
        LineTime("thread-noncpu", "gil", "clean", Frame("StringMethods.upper", ETL, 88), 7_500_000_000),
        LineTime("thread-noncpu", "gil", "clean", Frame("StringMethods.split", ETL, 89), 1_500_000_000),
    ]
    # useful time has lines, too
    found = {(each.bucket, each.place): each.ns for each in line_times(exact_stacks(profiled()))}
    assert found["thread-cpu", Frame("StringMethods.upper", ETL, 88)] == 6 * SECOND
    assert found["library-threads", ARROW[0]] == 2 * SECOND


@given(profiled_reports())
def test_lines_add_up_and_the_most_costly_is_first(report: EfficiencyReport) -> None:
    lines = line_times(exact_stacks(report))
    found: Counter[tuple[str, str, str]] = Counter()
    for each in lines:
        found[each.bucket, each.cause, each.prefix] += each.ns
    assert found == exact_times(report)
    assert [each.ns for each in lines] == sorted((each.ns for each in lines), reverse=True)
    assert len({(each.bucket, each.cause, each.prefix, each.place) for each in lines}) == len(lines)


HELD_BY = "`StringMethods.upper` in etl.py:88 (prefix clean)"


def test_the_culprits_are_those_worked_out_by_hand() -> None:
    noncpu = "thread-noncpu"
    assert [astuple(each)[:7] for each in profiled().culprits] == [
        # clean had the GIL for 40 + 30 of 120 samples, the event loop for 50
        (noncpu, "gil", "clean", "etl.py:88", "StringMethods.upper", 6.0, HELD_BY),
        (noncpu, "gil", "clean", "etl.py:89", "StringMethods.split", 3.0, HELD_BY),
        (noncpu, "file", "load", "etl.py:20", "BufferedReader.read", 3.0, ""),
        ("idle", "parallelism", "clean", "", "", 2.0, ""),
        (noncpu, "core", "clean", "", "", 1.0, ""),
        (noncpu, "unknown", "load", "", "", 1.0, ""),
        ("idle", "scheduler", "", "", "", 1.0, ""),
        ("idle", "parallelism", "load", "", "", 1.0, ""),
        ("overhead", "event-loop", "", "", "", 0.6, ""),
        ("overhead", "hand-over", "", "", "", 0.4, ""),
    ]


def test_of_a_report_without_causes_the_prefixes_are_named() -> None:
    found = [(each.bucket, each.prefix, each.line, each.seconds) for each in find_culprits(by_hand())]
    assert found[:2] == [("spill", "load", "", 3.0), ("thread-noncpu", "sum", "", 2.0)]
    assert found[2:] == [("failed", "sum", "", 1.0), ("idle", "", "", 1.0)]
    assert report_of().culprits == ()


def test_a_librarys_line_has_the_users_line_that_computed_it() -> None:
    theirs = (Frame("make_string", "/site-packages/dask/datasets.py", 33),)
    own = (Frame("load", "/home/me/etl.py", 7),)
    slept = causes(**{"thread-noncpu/sleep": 5.0})
    report = report_of(
        seconds(thread_noncpu=10),
        by_prefix=dict.fromkeys("ab", seconds(thread_noncpu=5)),
        causes_by_worker={"w0": causes(**{"thread-noncpu/sleep": 10.0})},
        causes_by_prefix=dict.fromkeys("ab", slept),
        profile=tuple(ProfileRow("thread-noncpu", "sleep", *row, 1) for row in (("a", theirs), ("b", own))),
    )
    for lines, shown in (({"b": "etl.py:43"}, ["", ""]), ({"a": "etl.py:42", "b": "etl.py:43"}, ["etl.py:42", ""])):
        assert [each.computed_by for each in find_culprits(replace(report, computed_by=lines))] == shown


def test_of_a_helpers_line_the_tasks_own_line_that_called_it_is_named_too() -> None:
    wait = Frame("wait", "/usr/lib/python3.12/threading.py", 655)
    wraps, wrapper = (Frame(name, "/home/me/retry.py", 4) for name in ("retry", "retry.<locals>.wrapper"))
    task, part, helper = Frame("load", ETL, 7), Frame("parse", ETL, 20), Frame("pause", "/home/me/helper.py", 3)
    assert caller((task, part, helper, wait)) == part
    assert caller((wrapper, task, helper)) == task
    assert caller((wrapper, helper)) == wrapper
    assert caller((wrapper, task)) == wrapper
    for stack in ((task, part, wait), (task, helper, part), (wait,), ()):
        assert caller(stack) == NOWHERE
    assert caller((wraps, task)) == wraps
    report = report_of(
        seconds(thread_noncpu=10),
        by_prefix={"load": seconds(thread_noncpu=10)},
        causes_by_worker={"w0": causes(**{"thread-noncpu/sleep": 10.0})},
        causes_by_prefix={"load": causes(**{"thread-noncpu/sleep": 10.0})},
        profile=tuple(
            ProfileRow("thread-noncpu", "sleep", "load", stack, ns)
            for stack, ns in (((task, helper), 1), ((task, part, helper), 3))
        ),
    )
    (found,) = find_culprits(report)
    assert (found.line, found.called_at, found.seconds) == ("helper.py:3", "etl.py:20", 10.0)
    (sleeping,) = (one for one in find(report) if one.kind == "thread-noncpu/sleep")
    parsed = tuple(replace(row, stack=(task, part, wait)) for row in report.profile)
    assert find_culprits(replace(report, profile=parsed))[0].within == "parse"
    assert sleeping.where == "`pause`, helper.py:3 (tasks of load), called at etl.py:20"
    assert own_line([((task, part, helper), 3)]) == "`pause`, helper.py:3, called at etl.py:20"


def test_tasks_that_all_waited_for_have_the_users_line_that_they_were_at() -> None:
    stack = (Frame("reify", f"{PANDAS}/../dask/bag/core.py", 3), Frame("topics", ETL, 20))
    report = report_of(
        seconds(thread_cpu=5, idle=5),
        by_prefix={"bag-items": seconds(thread_cpu=5)},
        causes_by_worker={"w0": causes(**{"idle/parallelism": 5.0})},
        waited_for={"bag-items": 5 * SECOND},
        nthreads={"w0": 2},
        profile=(ProfileRow("thread-cpu", "", "bag-items", stack, 5),),
        computed_by={"bag-items": "etl.py:42"},
    )
    (idle,) = (one for one in find(report) if one.kind == "idle/parallelism")
    assert idle.where == "tasks of bag-items, mostly in `topics`, etl.py:20, computed by etl.py:42"


def test_many_lines_are_bounded_and_the_most_costly_kept() -> None:
    rows = (ProfileRow("thread-noncpu", "gil", "clean", (Frame("f", ETL, line),), line) for line in range(1, 100))
    found = profiled(profile=tuple(rows)).culprits
    assert len(found) == MAX_CULPRITS
    assert [each.line for each in found if each.cause == "gil"][:2] == ["etl.py:99", "etl.py:98"]


@given(profiled_reports())
def test_without_the_bound_culprits_of_a_cause_add_up_to_it_exactly(report: EfficiencyReport) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dask_efficiency.report.culprits.MAX_CULPRITS", 10**6)
        found = find_culprits(report)
    sums: Counter[str] = Counter()
    for each in found:
        assert each.bucket not in GOOD
        assert each.held_by == "" or each.cause in ("gil", "lock")
        sums[each.bucket] += round(each.seconds * SECOND)
    whole = report.breakdown
    lost = {str(loss.bucket): whole.ns(loss.bucket) for loss in report.losses}
    # seconds are floats: their sum is right to the last digit that they have
    assert sums == pytest.approx(lost, rel=1e-12)


def test_holders_of_the_gil_are_in_words() -> None:
    for holder, stack, text in (
        ("clean", UPPER, HELD_BY),
        ("clean", (CLEAN,), "`clean` in etl.py:88 (prefix clean)"),
        ("clean", (), "tasks of prefix clean"),
        (EVENT_LOOP, LOOP, "the worker's event loop, `BaseEventLoop.run_forever` in base_events.py:640"),
        (EVENT_LOOP, (), "the worker's event loop"),
        ("(thread MainThread)", (CLEAN,), "`clean` in etl.py:88 (thread MainThread)"),
        ("(thread MainThread)", (), "(thread MainThread)"),
    ):
        assert holder_text(holder, blamed(stack)) == text
        assert profiled(gil_holders=(GilHolder("clean", holder, stack, 5),)).culprits[0].held_by == text
        assert profiled(gil_holders=(GilHolder("load", holder, stack, 5),)).culprits[0].held_by == ""
        assert place_text(blamed(stack)) in text


def test_the_gil_is_held_by_whoever_holds_it_for_most_of_the_time_at_any_lines() -> None:
    lines = [(Frame("parse", "etl.py", number),) for number in (1, 2, 2, 3)]
    holders = [GilHolder("clean", "load", stack, 2) for stack in lines]
    other = GilHolder("clean", EVENT_LOOP, (Frame("read", "iostream.py", 9),), 7)
    assert profiled(gil_holders=(*holders, other)).culprits[0].held_by == "`parse` in etl.py:2 (prefix load)"
    of_loop = profiled(gil_holders=(*holders, replace(other, ns=9))).culprits[0]
    assert of_loop.held_by == "the worker's event loop, `read` in iostream.py:9"
    assert profiled(gil_holders=(*holders, replace(other, ns=8))).culprits[0].held_by == ""


def test_the_user_s_own_lines_that_hold_the_gil_go_before_a_library_s_that_holds_it_less() -> None:
    own = [GilHolder("clean", "load", (Frame("parse", "etl.py", number),), 2) for number in (1, 2, 2, 3)]
    library = Frame("read_csv", "/opt/venv/lib/python3.12/site-packages/pandas/io/parsers/readers.py", 9)
    of_library = GilHolder("clean", "load", (library,), 7)
    assert profiled(gil_holders=(*own, of_library)).culprits[0].held_by == "`parse` in etl.py:2 (prefix load)"
    of_library = replace(of_library, ns=9)
    assert profiled(gil_holders=(*own, of_library)).culprits[0].held_by == "`read_csv` in readers.py:9 (prefix load)"


def test_beside_a_library_that_holds_the_gil_the_user_s_own_line_that_waits_is_named() -> None:
    library = (Frame("read_csv", "/opt/venv/lib/python3.12/site-packages/pandas/io/parsers/readers.py", 9),)
    for stack, end in (
        (library, ", while `StringMethods.upper`, etl.py:88, waits"),
        ((CLEAN,), "`clean` in etl.py:88 (prefix load)"),
    ):
        report = profiled(gil_holders=(GilHolder("clean", "load", stack, 5),))
        (gil,) = (one for one in find(report) if one.kind == "thread-noncpu/gil")
        assert gil.where.endswith(end)


def looks_at_a_lock(looks: int, *holders: tuple[str, tuple[Frame, ...], int]) -> tuple[LockLook, ...]:
    counted = (LockLook("clean", LOOKS, (), looks), LockLook("clean", WAITING, (), 3 * looks))
    return counted + tuple(LockLook("clean", *holder) for holder in holders)


def test_of_a_librarys_lock_the_function_that_takes_it_is_named() -> None:
    lock = causes(**{"thread-noncpu/lock": 8})
    report = report_of(
        seconds(thread_noncpu=8),
        by_prefix={"clean": seconds(thread_noncpu=8)},
        causes_by_worker={"w0": lock},
        causes_by_prefix={"clean": lock},
        profile=(ProfileRow("thread-noncpu", "lock", "clean", XARRAY, 1),),
        computed_by={"clean": "etl.py:43"},
    )
    found = report.culprits[0]
    assert (found.function, found.computed_by) == ("NetCDF4ArrayWrapper._getitem", "etl.py:43")


@pytest.mark.parametrize(
    ("looks", "text"),
    [
        (
            looks_at_a_lock(10, ("clean", UPPER, 9), ("load", ARROW, 6)),
            "`StringMethods.upper` in etl.py:88 (in 9 of 10",
        ),
        (
            looks_at_a_lock(10, ("load", ARROW, 4), ("load", (*LOOP, *ARROW), 3)),
            "`read_table` in core.py:1800 (prefix load) (in 7",
        ),
        (
            looks_at_a_lock(3, ("clean", UPPER, 2), ("clean", UPPER, 2)),
            "`StringMethods.upper` in etl.py:88 (in 3 of 3 looks, 3 t",
        ),
        (looks_at_a_lock(10, ("clean", UPPER, 5)), ""),
        (looks_at_a_lock(2, ("clean", UPPER, 2)), ""),
        (looks_at_a_lock(9, ("clean", (), 9)), ""),
        (looks_at_a_lock(9)[1:], ""),
    ],
)
def test_a_lock_is_held_by_whoever_may_hold_it_in_most_looks(looks: tuple[LockLook, ...], text: str) -> None:
    lock = causes(**{"thread-noncpu/lock": 8})
    report = report_of(
        seconds(thread_noncpu=8),
        by_prefix={"clean": seconds(thread_noncpu=8)},
        causes_by_worker={"w0": lock},
        causes_by_prefix={"clean": lock},
        profile=(ProfileRow("thread-noncpu", "lock", "clean", (CLEAN,), 1),),
        lock_looks=looks,
        cluster_seconds=8.0,
        window_seconds=8.0,
    )
    held_by = report.culprits[0].held_by
    assert held_by.startswith(text) if text else held_by == ""
    where = f"`clean`, etl.py:88, held by {held_by}" if text else "`clean`, etl.py:88"
    assert report.findings[0].where == where


@given(profiled_reports())
def test_the_culprits_of_a_saved_report_are_the_same(report: EfficiencyReport) -> None:
    read = from_dict(json.loads(json.dumps(report.to_dict())))
    assert read.culprits == report.culprits
