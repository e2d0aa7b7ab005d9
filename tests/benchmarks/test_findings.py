from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.diagnoses import DIAGNOSES
from benchmarks.findings import CURES, NAMED, NOTHING, Judged, claims, recorded_as
from dask_efficiency.report.kinds import BESIDE, KINDS

RECORDED = Path(__file__).parents[1] / "data" / "diagnoses"

#: Kinds that are neither a bucket nor a cause.
OTHERS = {NOTHING, "client", "long-task", "no-workers", "repeats", "slow-worker"}

#: Of a run of 10 s, 4 s are predicted to be saved, and are.
RIGHT = Judged("object_strings", "a screen", ["thread-noncpu/gil"], 4.0, [3.0, 5.0], "replayed", "a cure", 10.0, 6.0)
BOUND = replace(RIGHT, saves_interval=None, basis="bounded")


# -- the table of cures ----------------------------------------------------------------------------


def test_each_workload_has_cures_of_kinds_that_there_are() -> None:
    assert CURES.keys() == NAMED.keys()
    for cures in CURES.values():
        named = [kind for cure in cures for kind in cure.kinds]
        assert named
        assert {*named} <= KINDS.keys() | BESIDE.keys() | OTHERS
        assert len({*named}) == len(named)


# -- what is judged --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [diagnosis.name for diagnosis in DIAGNOSES])
def test_the_first_finding_of_a_recorded_run_is_its_fault(name: str) -> None:
    found = recorded_as(name, RECORDED)
    assert isinstance(found, Judged)
    assert found.right, found.kinds


@pytest.mark.parametrize(("cured", "kept"), [(4.9, False), (5.1, True), (6.9, True), (7.1, False), (None, None)])
def test_a_replayed_saving_is_kept_within_its_interval(cured: float | None, kept: bool | None) -> None:
    assert replace(RIGHT, cured_seconds=cured).kept is kept


@pytest.mark.parametrize(("cured", "kept"), [(5.4, False), (5.6, True), (11.0, True), (None, None)])
def test_a_bound_is_kept_if_no_more_is_saved(cured: float | None, kept: bool | None) -> None:
    assert replace(BOUND, cured_seconds=cured).kept is kept


# -- what is claimed -------------------------------------------------------------------------------


def holds(*results: Judged) -> list[bool | None]:
    return [claim.holds for claim in claims(results)]


def test_all_claims_hold_for_runs_that_save_the_predicted_time() -> None:
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
