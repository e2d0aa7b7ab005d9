from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import findings
from benchmarks.diagnoses import DIAGNOSES
from benchmarks.diagnoses_work import Ran
from benchmarks.findings import CURES, FOREIGN, NAMED, NOTHING, Cure, Judged, claims, judged, recorded_as, together
from benchmarks.real_programs.programs import PROGRAMS
from dask_efficiency.report.kinds import BESIDE, KINDS
from tests.report.samples import report_of, seconds, waiting_for_the_gil

RECORDED = Path(__file__).parents[1] / "data" / "diagnoses"

#: Kinds that are neither a bucket nor a cause.
OTHERS = {NOTHING, "client", "long-task", "no-workers", "repeats", "slow-worker"}

#: Of a run of 10 s, 4 s are said to be saved, and are.
RIGHT = Judged("object_strings", "a screen", ["thread-noncpu/gil"], 4.0, [3.0, 5.0], "replayed", "a cure", 10.0, 6.0)
BOUND = replace(RIGHT, saves_interval=None, basis="bounded")


def ran(report: Any) -> Ran:
    return Ran(report, stopwatch_seconds=10.0, kernel={})


# -- the table of cures ----------------------------------------------------------------------------


def test_each_workload_has_cures_of_kinds_that_there_are() -> None:
    assert CURES.keys() == NAMED.keys()
    for cures in CURES.values():
        named = [kind for cure in cures for kind in cure.kinds]
        assert named
        assert {*named} <= KINDS.keys() | BESIDE.keys() | OTHERS
        assert len({*named}) == len(named)


@pytest.mark.parametrize("name", CURES)
def test_each_cure_is_something_that_its_workload_can_be_run_with(name: str) -> None:
    known = {*inspect.signature(NAMED[name].run).parameters}
    if name in PROGRAMS:
        known |= {*inspect.signature(PROGRAMS[name].prepare).parameters}
    assert {option for cure in CURES[name] for option in cure.options or {}} <= known


# -- what is judged --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [diagnosis.name for diagnosis in DIAGNOSES])
def test_the_first_finding_of_a_recorded_run_is_its_fault(name: str) -> None:
    found = recorded_as(name, RECORDED)
    assert isinstance(found, Judged)
    assert found.right, found.kinds


def test_what_was_not_recorded_is_skipped(tmp_path: Path) -> None:
    assert str(recorded_as("skew", tmp_path)).startswith("skipped")


def test_a_run_is_judged_by_its_first_finding() -> None:
    report = waiting_for_the_gil()
    found = judged("object_strings", ran(report))
    assert (found.kinds, found.saves_seconds) == (["thread-noncpu/gil"], report.findings[0].saves_seconds)
    assert found.cure == "four processes with one thread each"
    assert not judged("skew", ran(report)).right


def test_where_nothing_was_found_no_cure_may_save_what_would_be_a_finding() -> None:
    healthy = report_of(seconds(thread_cpu=10), cluster_seconds=10.0, window_seconds=10.0)
    found = judged("threads_beyond_cores", ran(healthy))
    assert (found.kinds, found.basis, found.saves_seconds) == ([NOTHING], "bounded", pytest.approx(0.3))
    assert replace(found, cured_seconds=9.3).kept
    assert not replace(found, cured_seconds=9.0).kept


@pytest.mark.parametrize(("cured", "kept"), [(4.9, False), (5.1, True), (6.9, True), (7.1, False), (None, None)])
def test_what_was_replayed_is_kept_within_its_interval(cured: float | None, kept: bool | None) -> None:
    assert replace(RIGHT, cured_seconds=cured).kept is kept


@pytest.mark.parametrize(("cured", "kept"), [(5.4, False), (5.6, True), (11.0, True), (None, None)])
def test_a_bound_is_kept_by_whatever_saves_no_more(cured: float | None, kept: bool | None) -> None:
    assert replace(BOUND, cured_seconds=cured).kept is kept


def test_of_a_replay_without_an_interval_only_the_error_is_judged() -> None:
    found = replace(RIGHT, saves_interval=None, cured_seconds=7.0)
    assert (found.kept, found.width, found.error) == (None, None, pytest.approx(0.1))
    assert (RIGHT.width, RIGHT.error, BOUND.error) == (0.2, 0.0, None)


def test_where_no_saving_is_known_none_is_judged() -> None:
    found = replace(RIGHT, saves_seconds=None, saves_interval=None, basis="unknown")
    assert (found.kept, found.error) == (None, None)


def test_of_several_runs_the_middle_one_is_judged_with_the_median_of_its_cure() -> None:
    runs = [
        replace(RIGHT, took_seconds=12.0, cured_seconds=5.0),
        replace(RIGHT, took_seconds=9.0, cured_seconds=None, cure="another", kinds=["spill"]),
        replace(RIGHT, took_seconds=11.0, cured_seconds=7.0, saves_seconds=4.5),
    ]
    found = together(runs)
    assert (found.took_seconds, found.saves_seconds, found.cured_seconds) == (11.0, 4.5, 6.0)
    assert not found.right  # in one run something else came first


def test_the_cure_of_the_first_finding_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def run(scale: float, **options: Any) -> Ran:
        asked.append(options)
        return replace(ran(waiting_for_the_gil()), stopwatch_seconds=10.0 - 3.0 * len(options))

    cures = (Cure(("spill",), "memory"), Cure(("thread-noncpu/gil",), "processes", {"workers": 4}))
    monkeypatch.setitem(findings.CURES, "skew", cures)
    monkeypatch.setitem(NAMED, "skew", replace(NAMED["skew"], run=run))
    found = findings.alone("skew", 1.0)
    assert (asked, found.saved_seconds) == ([{}, {"workers": 4}], 3.0)
    monkeypatch.setitem(findings.CURES, "skew", (replace(cures[1], options=None),))
    assert findings.alone("skew", 1.0).saved_seconds is None


# -- what is claimed -------------------------------------------------------------------------------


def holds(*results: Judged) -> list[bool | None]:
    return [claim.holds for claim in claims(results)]


def test_all_claims_hold_of_runs_that_save_what_was_said() -> None:
    assert holds(RIGHT, BOUND) == [True, True, True, True, None]
    assert holds() == [None, None, None, None, None]


def test_each_claim_can_fail() -> None:
    assert holds(replace(RIGHT, kinds=["spill"])) == [False, True, True, True, None]
    assert holds(*[RIGHT] * 9, replace(RIGHT, cured_seconds=8.0)) == [True, True, True, True, None]
    assert holds(*[RIGHT] * 8, *[replace(RIGHT, cured_seconds=8.0)] * 2) == [True, False, True, True, None]
    assert holds(replace(RIGHT, saves_interval=[2.0, 5.0])) == [True, True, False, True, None]
    assert holds(replace(RIGHT, saves_seconds=5.1, saves_interval=[3.0, 5.2])) == [True, True, True, False, None]
    bounds = claims([BOUND, replace(BOUND, cured_seconds=5.0)])[-1]
    assert (bounds.words, bounds.holds) == ('no more was saved than "up to" says in 1 of 2', None)


def test_programs_of_others_have_no_fault_but_count_where_they_were_cured() -> None:
    program = replace(RIGHT, name=FOREIGN[0].name, kinds=["spill"], cured_seconds=9.0)
    assert holds(program) == [None, False, True, False, None]


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (RIGHT, 0),
        (replace(RIGHT, kinds=["spill"]), 1),
        ("skipped, as pandas cannot be imported here", 0),
        ("did not end within 9 s", 1),
    ],
)
def test_what_does_not_hold_or_end_fails(
    told: Judged | str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(findings, "elsewhere", lambda name, options: told)
    assert findings.main(["object_strings"]) == code
    said = capsys.readouterr().out
    assert NAMED["object_strings"].truth in said
    assert ("4.00 (3.00 to 5.00)   4.00  yes" in said) is isinstance(told, Judged)
