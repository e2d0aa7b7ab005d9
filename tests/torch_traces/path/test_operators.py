"""Operators of profiled tasks, and the section that shows them."""

from dataclasses import replace
from pathlib import Path

import pytest

from dask_efficiency import RunTrace, load_report
from dask_efficiency.report.sections.groups import operators as shown
from dask_efficiency.torch_traces.path import operators as module
from dask_efficiency.torch_traces.path.operators import operators
from tests.report.samples import by_hand
from tests.torch_traces.path.programs import Event, written
from tests.torch_traces.path.test_join import RUN, STEP, TRACE, US, profiled

PREFIX = TRACE.prefixes[TRACE.tasks.prefix[TRACE.runs.task[RUN]]]
#: An operator in another one, on a thread without a GPU.
ON_A_CPU = written("aten::linear 100-1000 @77, aten::addmm 200-900 @77")


def in_us(trace: RunTrace) -> list[tuple[str, str, int]]:
    found = operators(trace)
    assert {(one.prefix, one.runs) for one in found} <= {(PREFIX, 1)}
    return [(one.name, one.kind, round(one.seconds * 1e6)) for one in found]


def lasting(events: list[Event]) -> RunTrace:
    """A task whose profile lasts for 10 ms."""
    trace = profiled(events)
    (profile,) = trace.profiles
    return replace(trace, profiles=(replace(profile, stop=profile.start + 10_000 * US),))


def test_operators_without_a_gpu_have_the_time_that_is_their_own() -> None:
    assert in_us(lasting(ON_A_CPU)) == [
        ("", "compute-cpu", 9_100),
        ("aten::addmm", "compute-cpu", 700),
        ("aten::linear", "compute-cpu", 200),
    ]


def test_kernels_and_waits_for_them_are_told_from_operators_and_all_adds_up() -> None:
    found = in_us(lasting(STEP))
    assert ("gemm", "gpu-compute", 5_650) in found
    assert sum(us for _, _, us in found) == 10_000


def test_a_profile_without_torch_is_time_in_no_operator_and_a_damaged_one_is_left_out() -> None:
    assert in_us(lasting([])) == [("", "", 10_000)]
    assert operators(replace(TRACE, profiles=(replace(lasting([]).profiles[0], content=b"no gzip"),))) == ()


def test_few_profiles_are_read_and_small_rows_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = lasting(ON_A_CPU)
    many = replace(trace, profiles=trace.profiles * 9)
    assert {one.runs for one in operators(many)} == {module.MAX_OF_PREFIX}
    monkeypatch.setattr(module, "MAX_ROWS", 1)
    assert in_us(trace) == [("", "compute-cpu", 9_100), ("2 more", "", 900)]


def test_a_report_shows_them_by_prefix_and_keeps_them_in_its_file(tmp_path: Path) -> None:
    report = by_hand(operators=operators(lasting(ON_A_CPU)))
    section = shown(report)
    assert section.lines == (f"{PREFIX}: 1 run read",)
    assert section.rows[:2] == (
        (PREFIX, "(no operator)", "compute-cpu", "9.1 ms", "91 %"),
        (PREFIX, "aten::addmm", "compute-cpu", "0.7 ms", "7.0 %"),
    )
    report.save(tmp_path / "report.json")
    assert load_report(tmp_path / "report.json") == report
    assert not shown(by_hand()).blocks
