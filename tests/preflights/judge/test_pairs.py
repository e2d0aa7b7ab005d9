from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.preflights.judge.links import MeasuredPair, MeasuredPairs
from dask_efficiency.preflights.judge.pairs import FIRST_PAIRS, MAX_ROUNDS, Pair, first_round, next_round, startable
from dask_efficiency.preflights.judge.readings import Component
from tests.preflights.judge.clusters import all_rounds, link, on_hosts_of_their_own

hosts_of_workers = st.lists(st.integers(0, 6), min_size=1, max_size=24).map(
    lambda numbers: {f"w{i}": f"h{number}" for i, number in enumerate(numbers)}
)
slowness = st.sampled_from([1.0, 1.4, 2.0, 5.0, math.inf])


def times(slow: dict[str, float]):
    return lambda pair: max(slow.get(worker, 1.0) for worker in pair)


@given(hosts_of_workers, st.dictionaries(st.integers(0, 23).map("w{}".format), slowness), st.integers())
def test_a_worker_is_at_most_once_in_a_round_and_never_twice_with_the_same_partner(hosts, slow, seed) -> None:
    for rounds in all_rounds(hosts, times(slow), seed)[1]:
        assert len(rounds) <= MAX_ROUNDS
        for pairs in rounds:
            assert max(Counter(worker for pair in pairs for worker in pair).values(), default=0) <= 1
        met = Counter(frozenset(pair) for pairs in rounds for pair in pairs)
        assert set(met.values()) <= {1}


@given(hosts_of_workers, st.integers())
def test_pairs_are_of_different_hosts_where_there_are_several(hosts, seed) -> None:
    _, (rounds,) = all_rounds(hosts, times({}), seed)
    if len(set(hosts.values())) > 1:
        assert all(hosts[one] != hosts[other] for pairs in rounds for one, other in pairs)


@given(st.integers(3, 30), st.integers())
def test_all_are_in_the_first_round_but_an_odd_worker_which_is_measured_after_it(workers: int, seed: int) -> None:
    assert len(first_round(on_hosts_of_their_own(workers), Random(seed))) == workers // 2
    links, (rounds,) = all_rounds(on_hosts_of_their_own(workers), times({}), seed)
    assert len(rounds) <= 3
    assert all(links.partners(f"w{i}") for i in range(workers))


@given(st.integers(4, 40), st.integers(0, 39), slowness.filter(lambda times: times > 1.3), st.integers())
def test_one_slow_or_failed_worker_among_four_or_more_is_named_and_no_other(workers, victim, slow, seed) -> None:
    name = f"w{victim % workers}"
    links, *_ = all_rounds(on_hosts_of_their_own(workers), times({name: slow}), seed)
    assert [*links.slow_workers()] == [name]
    assert not links.slow_paths()


@given(
    st.integers(6, 30),
    st.sets(st.integers(0, 5), min_size=2, max_size=2),
    slowness.filter(lambda t: t > 1.3),
    st.integers(),
)
def test_two_slow_workers_among_six_or_more_are_named_and_no_other(workers, victims, slow, seed) -> None:
    names = {f"w{i}" for i in victims}
    links, *_ = all_rounds(on_hosts_of_their_own(workers), times(dict.fromkeys(names, slow)), seed)
    assert links.slow_workers().keys() == names


@given(st.integers())
def test_two_slow_workers_of_four_are_named(seed) -> None:
    links, *_ = all_rounds(on_hosts_of_their_own(4), times({"w0": 5.0, "w2": 5.0}), seed)
    assert links.slow_workers().keys() == {"w0", "w2"}


@pytest.mark.parametrize("workers", [4, 6, 8])
def test_half_of_the_workers_are_named_if_all_their_pairs_are_slow(workers: int) -> None:
    slow = dict.fromkeys((f"w{i}" for i in range(workers // 2)), 5.0)
    pairs = [Pair(*both) for both in combinations(on_hosts_of_their_own(workers), 2)]
    links = MeasuredPairs([link(pair, times(slow)(pair), 3) for pair in pairs])
    assert links.slow_workers().keys() == slow.keys()


@given(st.integers(2, 30), st.integers())
def test_no_worker_among_equals_is_named_and_one_pair_each_is_enough_for_many(workers: int, seed: int) -> None:
    links, (rounds,) = all_rounds(on_hosts_of_their_own(workers), times({}), seed)
    assert not links.slow_workers()
    assert not links.slow_paths()
    if workers >= 2 * FIRST_PAIRS:
        assert max(Counter(worker for pairs in rounds for pair in pairs for worker in pair).values()) <= 2
        assert sum(map(len, rounds)) == (workers + 1) // 2


@given(st.integers(2, 12), st.integers(2, 12), st.floats(1.5, 20), st.integers())
def test_a_slow_path_between_two_groups_is_named_and_no_worker(left: int, right: int, slow: float, seed: int) -> None:
    hosts = {f"a{i}": f"a{i}" for i in range(left)} | {f"b{i}": f"b{i}" for i in range(right)}
    links, rounds = all_rounds(hosts, lambda pair: slow if pair.first[0] != pair.second[0] else 1.0, seed)
    assert not links.slow_workers()
    groups = [{worker for worker in hosts if worker[0] == side} for side in "ab"]
    for path in links.slow_paths():
        assert any(set(path.first) <= one and set(path.second) <= other for one, other in (groups, groups[::-1]))
    if left + right <= 4:
        assert len(links.slow_paths()) == 1, rounds


def test_neither_of_two_workers_is_named_for_a_slow_pair() -> None:
    links, (rounds,) = all_rounds(on_hosts_of_their_own(2), lambda pair: 5.0)
    assert len(rounds) == 1
    assert not links.slow_workers()


def among_four(component: Component, slow: float, usual: float, **more: float) -> list[MeasuredPair]:
    """All pairs of four workers, of which those of a take longer."""
    return [MeasuredPair(*two, {component: slow if "a" in two else usual}, **more) for two in combinations("abcd", 2)]


@pytest.mark.parametrize(
    ("links", "named"),
    [
        (among_four(Component.LATENCY, 1.9e-3, 2e-4), []),  # shorter than Dask's own time
        (among_four(Component.LATENCY, 1e-2, 2e-4), ["a"]),
        (among_four(Component.SEND, 1.6, 1.0), ["a"]),
    ],
)
def test_a_difference_that_chance_or_dask_makes_names_nobody(links: list[MeasuredPair], named: list[str]) -> None:
    assert [*MeasuredPairs(links).slow_workers()] == named


def test_first_looks_do_not_count_once_other_pairs_have_all_repetitions() -> None:
    looked = [MeasuredPair("a", "b", {Component.SEND: 0.5}), MeasuredPair("e", "f", {Component.SEND: 0.6})]
    found = MeasuredPairs([*looked, *among_four(Component.SEND, 2.0, 1.0, repeats=3)])
    assert found.slow_workers() == {"a": {Component.SEND: 2.0}}
    assert found.readings("e") == {Component.SEND: 0.6}


def test_the_second_round_pairs_the_slow_with_the_fast() -> None:
    hosts = on_hosts_of_their_own(6)
    first = [Pair("w0", "w1"), Pair("w2", "w3"), Pair("w4", "w5")]
    links = MeasuredPairs([link(pair, cost) for pair, cost in zip(first, (5.0, 1.0, 1.1), strict=True)])
    second = {frozenset(pair) for pair in next_round(1, hosts, links, Random(1))}
    slow = {frozenset(pair) & {"w0", "w1"} for pair in second}
    assert len(slow - {frozenset()}) == 2


@given(
    st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1, max_size=2), unique=True),
    st.sets(st.sampled_from("abcdef")),
)
def test_a_machine_measures_one_thing_at_a_time(waiting, busy) -> None:
    found = startable(waiting, busy, lambda turn: turn)
    used = Counter([*busy, *(place for turn in found for place in turn)])
    assert set(used.values()) <= {1}
    assert found or not waiting or busy
