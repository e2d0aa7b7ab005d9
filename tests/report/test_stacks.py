import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import CAUSES, Bucket, cause_name
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report.stacks import (
    NoStacksError,
    cause_rows,
    collapsed,
    exact_stacks,
    exact_times,
    known_stacks,
    sampled_stacks,
    speedscope,
)
from dask_efficiency.report.values import ProfileRow
from tests.report.profile_samples import ETL, UPPER, profiled, profiled_reports
from tests.report.samples import HOSTILE_NAMES, SECOND, by_hand, changed, report_of, seconds


def test_time_without_samples_is_unknown_and_running_and_no_work_are_left_out() -> None:
    # spill 3 s by prefix; a is idle for 1 s; 2 s of no-work, 1 s running
    assert exact_times(by_hand()) == {
        ("thread-cpu", "", "load"): 6 * SECOND,
        ("thread-cpu", "", "sum"): 4 * SECOND,
        ("thread-noncpu", "unknown", "sum"): 2 * SECOND,
        ("spill", "", "load"): 3 * SECOND,
        ("failed", "", "sum"): SECOND,
        ("idle", "unknown", ""): SECOND,
    }
    # waiting that no prefix has keeps the causes of the whole
    report = report_of(seconds(thread_noncpu=5), causes_by_worker={"w0": {"thread-noncpu/lock": 4 * SECOND}})
    by_cause = {("thread-noncpu", "lock", ""): 4 * SECOND, ("thread-noncpu", "unknown", ""): SECOND}
    assert exact_times(report) == by_cause
    # in retrospect, the prefixes have it, and their causes are not known
    assert exact_times(changed(report, by_prefix={"load": seconds(thread_noncpu=5)})) == by_cause


@given(profiled_reports())
def test_times_of_a_bucket_and_of_a_cause_add_up_to_it_exactly(report: EfficiencyReport) -> None:
    whole = report.breakdown
    by_bucket: Counter[str] = Counter()
    by_cause: Counter[str] = Counter()
    for (bucket, cause, _), ns in exact_times(report).items():
        assert ns > 0
        by_bucket[bucket] += ns
        by_cause[cause_name(Bucket(bucket), cause)] += ns
    assert by_bucket == {bucket: whole.ns(bucket) for bucket in whole if bucket != "no-work"}
    causes = report.causes_by_worker.get("w0", {})
    known = {name: ns for name, ns in by_cause.items() if Bucket(name.partition("/")[0]) in CAUSES}
    assert known == {name: ns for name, ns in causes.items() if ns}
    assert sum(cause_rows(report).values()) == whole.total_ns


@given(profiled_reports())
def test_stacks_of_a_bucket_cause_and_prefix_add_up_to_its_time_exactly(report: EfficiencyReport) -> None:
    found: Counter[tuple[str, str, str]] = Counter()
    for row in exact_stacks(report):
        assert row.ns > 0
        found[row.bucket, row.cause, row.prefix] += row.ns
    assert found == exact_times(report)


def test_samples_of_no_time_and_of_unknown_causes_and_prefixes_change_nothing() -> None:
    strange = (
        ProfileRow("thread-noncpu", "core", "clean", UPPER, 0),
        ProfileRow("thread-noncpu", "sleep", "clean", UPPER, 9),
        ProfileRow("thread-cpu", "", "nobody", UPPER, 9),
    )
    assert exact_stacks(profiled(profile=strange)) == exact_stacks(profiled(profile=()))


def test_only_buckets_with_stacks_are_drawn_and_a_report_without_any_is_refused() -> None:
    assert {row.bucket for row in sampled_stacks(profiled())} == {"thread-cpu", "library-threads", "thread-noncpu"}
    assert sampled_stacks(profiled(profile=())) == ()

    with pytest.raises(NoStacksError, match="'a run' has no stacks; expected"):
        known_stacks(by_hand())


def parsed(text: str) -> list[tuple[list[str], int]]:
    """Frames and number of each line, as flamegraph.pl reads them."""
    lines = [line.rpartition(" ") for line in text.split("\n")[:-1]]
    return [(stack.split(";"), int(count)) for stack, _, count in lines]


def test_each_stack_is_a_line_with_its_nanoseconds() -> None:
    upper = "StringMethods.upper (accessor.py:1200);ObjectStringArrayMixin._str_map (object_array.py:90)"
    assert collapsed(profiled()).splitlines()[2:6] == [
        "library-threads;load;read_table (core.py:1800) 2000000000",
        f"thread-noncpu/gil;clean;clean (etl.py:88);{upper} 6000000000",
        "thread-noncpu/gil;clean;clean (etl.py:89);StringMethods.split (accessor.py:900) 3000000000",
        "thread-noncpu/core;clean 1000000000",
    ]


@given(profiled_reports())
def test_collapsed_stacks_keep_the_number_of_frames_and_the_total_time_for_any_names(report: EfficiencyReport) -> None:
    rows = sampled_stacks(report)
    if not rows:
        return
    text = collapsed(report)
    text.encode("utf-8")
    found = parsed(text)
    assert sum(ns for _, ns in found) == sum(row.ns for row in rows)
    assert {len(stack) for stack, _ in found} == {2 + len(row.stack) for row in rows}
    assert all(each.isprintable() for stack, _ in found for each in stack)


def test_a_name_cannot_end_its_frame_or_its_line() -> None:
    stack = tuple(Frame(f"a;b\n{name}", f"/x/c;d\n{name}", 1) for name in HOSTILE_NAMES)
    rows = (ProfileRow("thread-cpu", "", "clean", stack, 1), ProfileRow("thread-cpu", "", "load", (), 1))
    (stacked, _), (bare, _) = parsed(collapsed(profiled(profile=rows)))[:2]
    assert len(stacked) == 2 + len(stack)
    assert stacked[2].startswith(r"a\x3bb\n")
    assert bare == ["thread-cpu", "load"]


def test_files_are_anywhere_that_fsspec_writes_to_and_are_not_written_without_stacks(tmp_path: Path) -> None:
    import fsspec

    profiled().to_collapsed(tmp_path / "stacks.txt.gz")
    with gzip.open(tmp_path / "stacks.txt.gz", "rt", encoding="utf-8") as file:
        assert file.read() == collapsed(profiled())
    profiled().to_speedscope("memory://profiles/x.json")
    with fsspec.open("memory://profiles/x.json") as file:
        assert json.load(file) == speedscope(profiled())
    for write in (by_hand().to_collapsed, by_hand().to_speedscope):
        with pytest.raises(NoStacksError):
            write(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["stacks.txt.gz"]


UNITS = {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}


def assert_valid(data: dict[str, Any]) -> None:
    """Check the rules of speedscope's schema for sampled profiles."""
    assert f"{data['name']}{data['exporter']}".isprintable()
    assert data["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(data) == {"$schema", "name", "exporter", "activeProfileIndex", "shared", "profiles"}
    assert set(data["shared"]) == {"frames"}
    for frame in data["shared"]["frames"]:
        assert {"name"} <= set(frame) <= {"name", "file", "line", "col"}
        assert frame["name"].isprintable()
        assert isinstance(frame.get("file", ""), str)
        assert isinstance(frame.get("line", 0), int)
    assert 0 <= data["activeProfileIndex"] < len(data["profiles"])
    frames = len(data["shared"]["frames"])
    for profile in data["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert profile["type"] == "sampled"
        assert profile["unit"] in UNITS
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= index < frames for sample in profile["samples"] for index in sample)
        assert all(weight > 0 for weight in profile["weights"])
        assert profile["endValue"] - profile["startValue"] == pytest.approx(sum(profile["weights"]))


def test_there_is_a_profile_for_each_cause_the_longest_first() -> None:
    data = speedscope(profiled(environment={"dask-efficiency": "9.9"}))
    assert_valid(data)
    times = [(profile["name"].removeprefix("thread-noncpu/"), profile["endValue"]) for profile in data["profiles"]]
    assert times[:3] == [("gil", 9.0), ("thread-cpu", 7.0), ("file", 3.0)]
    assert times[3:] == [("library-threads", 2.0), ("core", 1.0), ("unknown", 1.0)]
    assert data["exporter"] == "dask-efficiency 9.9"
    assert data["name"] == "a run"
    # a stack begins with its prefix and ends with the innermost frame
    frames, gil = data["shared"]["frames"], data["profiles"][0]
    stacks = [[frames[index] for index in sample] for sample in gil["samples"]]
    upper, split = (" ".join(frame["name"] for frame in stack) for stack in stacks)
    assert upper == "clean clean StringMethods.upper ObjectStringArrayMixin._str_map"
    assert split == "clean clean StringMethods.split"
    assert stacks[0][:2] == [{"name": "clean"}, {"name": "clean", "file": ETL, "line": 88}]
    assert gil["weights"] == [6.0, 3.0]


@given(profiled_reports())
def test_any_report_with_stacks_makes_a_valid_file_that_holds_all_of_their_time(report: EfficiencyReport) -> None:
    rows = sampled_stacks(report)
    if not rows:
        return
    data = speedscope(replace(report, name="\x1b]0;title\x07", environment={"dask-efficiency": HOSTILE_NAMES[2]}))
    assert_valid(data)
    assert sum(each["endValue"] for each in data["profiles"]) == pytest.approx(sum(row.ns for row in rows) / 1e9)
    json.dumps(data, allow_nan=False).encode("ascii")
