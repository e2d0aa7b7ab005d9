"""Rounds: told once when it begins and once when it ends."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.rounds.rounds import Change, Rounds

ALL = {"a", "b", "c"}


def finding(name: str, *, since: float = 0.0, cause: Cause = Cause.GPU) -> SlowWorker:
    return SlowWorker(name, "", cause, 1.5, 0.8, since, None)


def changes(rounds: Rounds, *names: str, present: set[str] = ALL, at: float = 0.0) -> list[tuple[str, str]]:
    return [(str(event.change), event.finding.subject) for event in rounds.judged(map(finding, names), present, at=at)]


def test_a_finding_that_goes_on_is_told_once() -> None:
    rounds = Rounds()
    assert changes(rounds, "a") == [("begins", "a")]
    assert changes(rounds, "a", "b") == [("begins", "b")]
    assert changes(rounds, "b", "a") == []


def test_it_ends_after_two_rounds_without_it() -> None:
    rounds = Rounds()
    changes(rounds, "a")
    assert changes(rounds) == []
    assert changes(rounds, "a") == []
    assert changes(rounds) == []
    assert changes(rounds) == [("ends", "a")]
    assert changes(rounds) == []
    assert changes(rounds, "a") == [("begins", "a")]


def test_it_ends_at_once_when_the_machine_is_gone() -> None:
    rounds = Rounds()
    changes(rounds, "a")
    assert changes(rounds, present={"b"}) == [("gone", "a")]


def test_it_keeps_the_time_at_which_it_began_and_has_the_newest_cause() -> None:
    rounds = Rounds()
    rounds.judged([finding("a", since=100)], ALL, at=200)
    rounds.judged([replace(finding("a", since=300), cause=Cause.DISK)], ALL, at=400)
    (ongoing,) = rounds.ongoing
    assert (ongoing.since, ongoing.cause) == (100, Cause.DISK)


@given(st.lists(st.sets(st.sampled_from(sorted(ALL))), max_size=30))
def test_what_began_and_did_not_end_goes_on(found: list[set[str]]) -> None:
    rounds = Rounds()
    open_ones: set[str] = set()
    for at, names in enumerate(found):
        for event in rounds.judged(map(finding, sorted(names)), ALL, at=at):
            name = event.finding.subject
            assert (event.change is Change.BEGINS) == (name not in open_ones)
            open_ones ^= {name}
        assert {one.subject for one in rounds.ongoing} == open_ones
        assert names <= open_ones
