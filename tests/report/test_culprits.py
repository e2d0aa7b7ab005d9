import json
from collections import Counter
from dataclasses import astuple

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.accounts.profile import EVENT_LOOP, Frame
from dask_efficiency.report.culprits import MAX_CULPRITS, at, find_culprits, who
from dask_efficiency.report.files import from_dict
from dask_efficiency.report.profile import GilHolder, ProfileRow
from tests.report.profile_samples import CLEAN, ETL, LOOP, UPPER, profiled, profiled_reports
from tests.report.samples import SECOND, by_hand, causes, report_of, seconds

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
    assert [(each.bucket, each.prefix, each.line, each.seconds) for each in find_culprits(by_hand())] == [
        ("spill", "load", "", 3.0),
        ("thread-noncpu", "sum", "", 2.0),
        ("failed", "sum", "", 1.0),
        ("idle", "", "", 1.0),
    ]
    assert report_of().culprits == ()


def test_a_librarys_line_is_beside_the_line_of_the_users_that_computed_it() -> None:
    theirs = (Frame("make_string", "/site-packages/dask/datasets.py", 33),)
    own = (Frame("load", "/home/me/etl.py", 7),)
    rows = tuple(
        ProfileRow("thread-noncpu", "sleep", prefix, stack, 1) for prefix, stack in (("a", theirs), ("b", own))
    )
    buckets = {prefix: seconds(thread_noncpu=2 + (prefix == "a")) for prefix in "ab"}

    def said(**computed_by: str) -> list[str]:
        report = report_of(
            seconds(thread_noncpu=5),
            by_prefix=buckets,
            causes_by_worker={"w0": causes(**{"thread-noncpu/sleep": 5.0})},
            causes_by_prefix={p: {"thread-noncpu/sleep": b.ns(Bucket.THREAD_NONCPU)} for p, b in buckets.items()},
            profile=rows,
            computed_by=computed_by,
        )
        return [each.computed_by for each in find_culprits(report)]

    assert said(a="etl.py:42", b="etl.py:43") == ["etl.py:42", ""]
    assert said(b="etl.py:43") == ["", ""]


def test_many_lines_are_bounded_and_the_most_costly_kept() -> None:
    rows = tuple(
        ProfileRow("thread-noncpu", "gil", "clean", (Frame("f", ETL, 1 + line),), 1 + line) for line in range(99)
    )
    found = profiled(profile=rows).culprits
    assert len(found) == MAX_CULPRITS
    assert [each.seconds for each in found] == sorted((each.seconds for each in found), reverse=True)
    assert [each.line for each in found if each.cause == "gil"][:2] == ["etl.py:99", "etl.py:98"]


@given(profiled_reports())
def test_without_the_bound_culprits_of_a_cause_add_up_to_it_exactly(report: EfficiencyReport) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dask_efficiency.report.culprits.MAX_CULPRITS", 10**6)
        found = find_culprits(report)
    sums: Counter[str] = Counter()
    for each in found:
        assert each.bucket not in GOOD
        assert each.held_by == "" or each.cause == "gil"
        sums[each.bucket] += round(each.seconds * SECOND)
    whole = report.breakdown
    lost = {str(loss.bucket): whole.ns(loss.bucket) for loss in report.losses}
    # seconds are floats: their sum is right to the last digit that they have
    assert sums == pytest.approx(lost, rel=1e-12)


@pytest.mark.parametrize(
    ("holder", "stack", "said"),
    [
        ("clean", UPPER, HELD_BY),
        ("clean", (CLEAN,), "`clean` in etl.py:88 (prefix clean)"),
        ("clean", (), "tasks of prefix clean"),
        (EVENT_LOOP, LOOP, "the worker's event loop, `BaseEventLoop.run_forever` in base_events.py:640"),
        (EVENT_LOOP, (), "the worker's event loop"),
    ],
)
def test_who_held_the_gil_is_said_as_people_say_it(holder: str, stack: tuple[Frame, ...], said: str) -> None:
    assert who(holder, stack) == said
    found = profiled(gil_holders=(GilHolder("clean", holder, stack, 5),)).culprits
    assert found[0].held_by == said
    assert who(holder, stack).find(at(stack)) >= 0


def test_who_held_it_is_known_by_the_prefix_that_waited() -> None:
    others = (GilHolder("load", EVENT_LOOP, LOOP, 10**9),)
    assert profiled(gil_holders=others).culprits[0].held_by == ""


@given(profiled_reports())
def test_the_culprits_of_a_saved_report_are_the_same(report: EfficiencyReport) -> None:
    read = from_dict(json.loads(json.dumps(report.to_dict())))
    assert read.culprits == report.culprits
