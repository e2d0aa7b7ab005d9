import gzip
from pathlib import Path

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.profile import Frame
from dask_efficiency.report.collapsed import collapsed
from dask_efficiency.report.profile import ProfileRow
from dask_efficiency.report.stacks import NoStacksError, sampled_stacks
from tests.report.profile_samples import profiled, profiled_reports
from tests.report.samples import HOSTILE_NAMES, by_hand


def parsed(text: str) -> list[tuple[list[str], int]]:
    """As flamegraph.pl reads it: the number stands behind the last space, frames between semicolons."""
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
def test_any_names_are_read_back_as_so_many_frames_and_the_time_adds_up(report: EfficiencyReport) -> None:
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


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    profiled().to_collapsed(tmp_path / "stacks.txt.gz")
    with gzip.open(tmp_path / "stacks.txt.gz", "rt", encoding="utf-8") as file:
        assert file.read() == collapsed(profiled())
    with pytest.raises(NoStacksError):
        by_hand().to_collapsed(tmp_path / "none.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["stacks.txt.gz"]
