from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.preflights.judge.alone import (
    MUCH_SLOWER,
    PAIRS,
    compare_alone,
    is_confirmed,
    suspects,
    unsettled,
    with_pair,
)
from dask_efficiency.preflights.judge.readings import THRESHOLD, Component, Reading, Subject
from dask_efficiency.preflights.judge.verdict import judge
from tests.preflights.judge.clusters import subject

ratios_of_pairs = st.lists(st.floats(0.5, 5.0), max_size=PAIRS)


@given(st.lists(st.floats(THRESHOLD, 100.0), min_size=PAIRS, max_size=PAIRS))
def test_a_worker_that_is_slow_in_all_pairs_is_confirmed(ratios: list[float]) -> None:
    assert is_confirmed(1.5, ratios) is True


@given(st.lists(st.floats(MUCH_SLOWER, math.inf), min_size=2, max_size=PAIRS))
def test_two_pairs_confirm_a_much_slower_worker(ratios: list[float]) -> None:
    assert is_confirmed(MUCH_SLOWER, ratios) is True
    assert is_confirmed(1.5, ratios[:2]) is None


@given(
    st.lists(st.floats(0.5, 100.0), max_size=PAIRS),
    st.lists(st.floats(0.5, 1.15, exclude_max=True), min_size=2),
    st.floats(THRESHOLD, 100.0),
)
def test_enough_equal_pairs_clear_a_suspect_however_slow_others_were(slow, alike, first) -> None:
    assert is_confirmed(first, [*slow, *alike]) is False


def test_a_turn_of_1_15_or_more_does_not_speak_for_the_worker() -> None:
    assert is_confirmed(1.4, [1.4, 1.19, 1.4, 1.15, 1.4]) is True
    assert is_confirmed(1.4, [1.4, 1.14, 1.4, 1.14]) is False


@given(ratios_of_pairs.filter(lambda ratios: is_confirmed(1.5, ratios) is None), st.floats(0.5, 5.0))
def test_a_suspect_is_confirmed_or_cleared_after_all_pairs(ratios: list[float], last: float) -> None:
    rest = PAIRS - len(ratios)
    assert is_confirmed(1.5, [*ratios, *[last] * rest]) is not None


@given(ratios_of_pairs, st.randoms())
def test_the_order_of_all_pairs_does_not_matter(ratios: list[float], random) -> None:
    mixed = sorted(ratios, key=lambda _: random.random())
    assert is_confirmed(1.5, mixed) is is_confirmed(1.5, ratios)


@given(st.floats(0.1, 10.0))
def test_a_pair_that_is_slow_on_both_sides_accuses_neither(moment: float) -> None:
    own, good = ({Component.CPU: Reading(rate / moment)} for rate in (2e10, 3e10))
    (ratio,) = with_pair(subject("w0", cpu=2e10), own, good).readings[Component.CPU].beside
    assert math.isclose(ratio, 1.5)


def test_a_pair_counts_only_if_both_workers_were_measured() -> None:
    one = subject("w0", cpu=2e10, disk=1e8)
    own = {Component.CPU: Reading(2e10), Component.DISK: Reading(1e8)}
    found = with_pair(one, own, {Component.CPU: Reading(0.0)})
    assert found == one
    assert with_pair(one, {Component.CPU: Reading(0.0)}, own) == one
    assert unsettled(found, {Component.CPU: 1.5, Component.DISK: 1.5}) == [Component.CPU, Component.DISK]


def suspect(*beside: float) -> list[Subject]:
    victim = subject("victim", cpu=1.5e10)
    reading = replace(victim.readings[Component.CPU], beside=beside)
    return [*(subject(f"w{i}", cpu=3e10) for i in range(3)), replace(victim, readings={Component.CPU: reading})]


def test_a_worker_that_seems_slow_is_a_suspect_until_it_is_confirmed_or_cleared() -> None:
    assert suspects(compare_alone(suspect())) == {"victim": {Component.CPU: 2.0}}
    assert not judge(suspect(1.0, 1.05), [], at=0.0)
    (finding,) = judge(suspect(1.5, 1.6, 1.4, 1.0, 1.5), [], at=0.0)
    assert (finding.worker, finding.effect) == ("victim", 1.5)
    # Without time for pairs the first measurement counts.
    assert [finding.worker for finding in judge(suspect(), [], at=0.0)] == ["victim"]


@pytest.mark.parametrize("workers", [4, 6, 8])
def test_half_of_the_workers_are_named_if_they_are_slow(workers: int) -> None:
    slow = {f"slow{i}" for i in range(workers // 2)}
    subjects = [subject(name, cpu=6e9) for name in slow] + [subject(f"w{i}", cpu=3e10) for i in range(workers // 2)]
    assert suspects(compare_alone(subjects)).keys() == slow
    assert {finding.worker for finding in judge(subjects, [], at=0.0)} == slow


def of_rates(**rates: float) -> list[Subject]:
    return [subject(name, disk=rate) for name, rate in rates.items()]


@pytest.mark.parametrize(
    ("rates", "named"),
    [
        ({"a": 3.0, "b": 1.0}, set()),  # of two, nobody can tell
        ({"fast": 6.0, "a": 2.0, "b": 2.0, "c": 2.0}, set()),  # one very fast worker makes no other slow
        ({"fast": 6.0, "a": 3.0, "b": 3.0, "c": 3.0, "d": 1.0}, {"d"}),
        ({"a": 3.0, "b": 3.0, "c": 1.5, "d": 1.5}, {"c", "d"}),
        ({"a": 3.0, "b": 1.5, "c": 1.5}, set()),  # half of the peers are not most of them
        ({"a": 3.0, "b": 3.0, "c": 1.5, "d": 1.5, "e": 1.5}, set()),
        ({"a": 3.2, "b": 3.2, "c": 3.2, "d": 2.0, "e": 2.0, "f": 2.0, "g": 2.0}, set()),
    ],
)
def test_suspects_are_slower_than_most_peers(rates: dict[str, float], named: set[str]) -> None:
    assert suspects(compare_alone(of_rates(**rates))).keys() == named
    assert {finding.worker for finding in judge(of_rates(**rates), [], at=0.0)} <= named


@pytest.mark.parametrize(
    ("rates", "named"),
    [
        ({"a": 3.0, "b": 2.0, "c": 0.0}, {"c"}),  # a peer that failed is slower too
        ({"a": 3.0, "b": 1.5, "c": 0.0, "d": 0.0}, {"c", "d"}),
        (
            dict(zip("abcd", [3.0] * 4, strict=True)) | dict.fromkeys("efghij", 0.0),
            set(),
        ),  # where most fail it is no fault of theirs
    ],
)
def test_a_reading_that_failed_is_named_and_counts_as_a_slow_peer(rates: dict[str, float], named: set[str]) -> None:
    assert not suspects(compare_alone(of_rates(**rates)))
    assert {finding.worker for finding in judge(of_rates(**rates), [], at=0.0)} == named
