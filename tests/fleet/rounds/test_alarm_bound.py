from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.rounds.alarm_bound import MOST_CONFIDENCE, AlarmBound, at_least
from dask_efficiency.fleet.rounds.rounds import FindingChange, Rounds
from dask_efficiency.straggler.retirements import DAY_SECONDS

EVERY = 480.0
A_DAY = round(DAY_SECONDS / EVERY)


def found(*names: str, score: float = 2.0) -> list[SlowWorker]:
    return [SlowWorker(name, "", Cause.UNKNOWN, score, 0.97, 0.0, None) for name in names]


class Watched:
    """A bound over rounds of eight machines, and the names that were admitted."""

    def __init__(self, machines: int = 8) -> None:
        self.bound, self.machines, self.number = AlarmBound(), machines, 0
        self.rounds = Rounds()
        self.begun: list[str] = []

    def round(self, findings: Iterable[SlowWorker] = ()) -> list[SlowWorker]:
        at = EVERY * self.number
        self.number += 1
        ongoing = {finding.subject for finding in self.rounds.ongoing}
        admitted = self.bound.admitted(list(findings), ongoing, machines=self.machines, at=at)
        events = self.rounds.judged(admitted, {str(number) for number in range(self.machines)}, at=at)
        self.begun += [event.finding.subject for event in events if event.change is FindingChange.BEGINS]
        return admitted

    def quiet(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round()


def strange(watched: Watched) -> None:
    """Let three machines be found within an hour."""
    for name in "123":
        watched.round(found(name))
        watched.quiet(2)


def test_machines_that_share_no_job_are_named_once_in_ten_days_of_which_each_round_has_an_alarm() -> None:
    random = np.random.default_rng(0)
    watched = Watched()
    for _ in range(30 * A_DAY):
        score = 1 + random.pareto(1.0)
        watched.round(found(str(random.integers(8)), score=score))
    assert watched.bound.since is not None
    assert len(watched.begun) <= 3 + 8  # before it is known; and records of a month


def test_faults_that_are_rare_are_all_named() -> None:
    watched = Watched()
    for day in range(10):
        assert watched.round(found(str(day % 8)))
        watched.quiet(A_DAY)
    assert watched.bound.since is None


def test_a_machine_that_comes_and_goes_is_one_alarm_and_so_are_machines_behind_one_switch() -> None:
    watched = Watched()
    for _ in range(20):
        assert len(watched.round(found("1", "2", "3", "4"))) == 4
        watched.quiet(3)
    assert watched.bound.since is None


@pytest.mark.parametrize(("machines", "strict"), [(8, True), (1500, False)])
def test_large_fleets_have_more_faults(machines: int, strict: bool) -> None:
    watched = Watched(machines)
    strange(watched)
    assert (watched.bound.since is not None) is strict


def test_then_only_the_furthest_of_all_is_named_and_only_after_a_day() -> None:
    watched = Watched()
    strange(watched)
    assert watched.round(found("4", score=50.0)) == []
    watched.quiet(A_DAY - watched.number)
    assert watched.round(found("5", score=49.0)) == []
    (named,) = watched.round(found("6", score=51.0))
    assert (named.worker, named.confidence) == ("6", MOST_CONFIDENCE)
    assert watched.round(found("7", score=50.5)) == []
    assert "these machines seem to share no job: " in watched.bound.sentence(8)


def test_one_that_was_named_goes_on_although_it_comes_nearer() -> None:
    watched = Watched()
    assert watched.round(found("1", score=9.0))
    for name in "2345":
        assert watched.round(found("1", name, score=2.0))[0].worker == "1"
    assert watched.bound.since is not None
    assert watched.begun == ["1", "2", "3"][: len(watched.begun)]


def test_after_a_day_in_which_nobody_was_withheld_all_are_named_again() -> None:
    watched = Watched()
    strange(watched)
    watched.round(found("4"))
    watched.quiet(A_DAY)
    assert watched.bound.since is not None
    watched.quiet(2)
    assert watched.bound.since is None
    assert watched.round(found("5"))


@pytest.mark.parametrize(
    ("count", "expected", "chance"), [(0, 5.0, 1.0), (1, 0.5, 0.3935), (3, 1.0, 0.0803), (2, 0.0, 0)]
)
def test_the_chance_of_so_many_independent_events(count: int, expected: float, chance: float) -> None:
    assert at_least(count, expected) == pytest.approx(chance, abs=1e-4)
