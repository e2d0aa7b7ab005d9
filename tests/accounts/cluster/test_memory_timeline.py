"""Memory over time: what a bin keeps, and that its parts add up."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.memory_timeline import (
    MAX_PREFIXES,
    MAX_WORKERS,
    ClusterMemory,
    MemoryNow,
    MemoryRecorder,
    MemoryTimeline,
)
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.cluster.timeline import MAX_BINS
from dask_efficiency.accounts.memory import MemoryLevels
from dask_efficiency.accounts.rows import MAX_APART as MAX_FOLLOWED
from dask_efficiency.accounts.rows import OTHER

SECOND = 1_000_000_000


def worker(name: str, limit: int | None = 100) -> Presence:
    presence = Presence(f"tcp://{name}", name, 2, 0)
    presence.loss.memory_limit = limit
    return presence


def levels(process: int, held: int = 0, spilled: int = 0, *, peak: int = -1, **prefixes: int) -> MemoryLevels:
    rows = {name: (size, 0) for name, size in prefixes.items()} or {"x": (held, spilled)}
    return MemoryLevels(process, peak, held or sum(prefixes.values()), spilled, spilled, rows)


def recorded(*steps: tuple[float, dict[Presence, MemoryLevels]], until: float) -> MemoryTimeline:
    """The timeline of what workers that are there said, second by second."""
    recorder = MemoryRecorder(at=0)
    for at, said in steps:
        for presence, level in said.items():
            presence.memory = level
        recorder.follow(ClusterMemory.of(said), at=round(at * SECOND))
    return recorder.timeline(at=round(until * SECOND))


def test_a_bin_has_what_there_was_when_most_was_taken_and_it_stays_until_news_comes():
    a, b = worker("a"), worker("b", 50)
    found = recorded(
        (0.1, {a: levels(10, 6), b: levels(5, 5)}),
        (0.6, {a: levels(30, 20), b: levels(5, 5)}),
        (0.9, {a: levels(12, 6, 4), b: levels(5, 5)}),
        (3.2, {a: levels(13, 6, 4), b: levels(40, 5)}),
        until=5,
    )
    assert (found.bin_ns, found.bins, found.elapsed_ns) == (SECOND, 5, 5 * SECOND)
    assert found.cluster.limit == 150
    assert found.cluster.process == (35, 17, 17, 53, 53)
    assert found.cluster.managed == (25, 11, 11, 11, 11)
    assert found.cluster.unmanaged == (10, 6, 6, 42, 42)
    assert found.cluster.spilled == (0, 4, 4, 4, 4)
    assert found.workers["a"].process == (30, 12, 12, 13, 13)
    assert list(found.workers) == ["b", "a"]  # nearest to its limit first
    assert asdict(found)["workers"]["a"]["limit"] == 100


def test_a_peak_between_two_heartbeats_is_that_of_its_worker_and_then_over():
    a = worker("a")
    steps = ((0.1, {a: levels(9, peak=95)}), (1.1, {a: levels(10, peak=90)}), (4.1, {a: levels(11, peak=11)}))
    assert recorded(*steps, until=6).workers["a"].process == (9, 90, 10, 10, 11, 11), "without that of before"
    assert recorded((0.0, {}), *steps, until=6).workers["a"].process == (95, 90, 10, 10, 11, 11), "it joined later"


def test_a_worker_that_left_takes_nothing_and_one_of_its_name_goes_on():
    a, again, b = worker("a"), worker("a", 200), worker("b")
    found = recorded(
        (0.1, {a: levels(10), b: levels(1)}),
        (2.1, {b: levels(1)}),
        (4.1, {b: levels(1), again: levels(7)}),
        until=6,
    )
    assert found.workers["a"].process == (10, 10, 10, 0, 7, 7)
    assert found.cluster.process == (11, 11, 11, 1, 8, 8)
    assert found.workers["a"].limit == 200


def test_nothing_measured_is_an_empty_line_and_negative_unmanaged_memory_is_shown_as_it_is():
    assert recorded(until=3).cluster.process == (0, 0, 0)
    assert recorded((0.1, {worker("a"): levels(5, 8)}), until=1).cluster.unmanaged == (-3,)
    assert recorded((0.1, {worker("a"): levels(-1, 8)}), until=1).cluster.process == (0,)
    assert ClusterMemory.of([worker("a")]).now == MemoryNow()


def test_prefixes_are_those_with_most_over_time_and_the_rest_is_one():
    a = worker("a", None)
    many = {f"p{i}": 10 - i for i in range(9)}
    found = recorded((0.1, {a: levels(90, **many)}), (1.1, {a: levels(90, p8=1000)}), until=2).cluster
    assert list(found.prefixes) == ["p8", *(f"p{i}" for i in range(MAX_PREFIXES - 1)), OTHER]
    assert found.prefixes["p8"] == (2, 1000)
    assert [sum(row) for row in zip(*found.prefixes.values(), strict=True)] == list(found.managed)


def test_live_views_get_the_sums_the_largest_prefixes_and_the_fullest_worker():
    a, b = worker("a"), worker("b", 50)
    a.memory, b.memory = levels(40, p=3, q=2, r=1, s=9), levels(30, held=0, spilled=7, p=5)
    now = ClusterMemory.of([a, b]).now
    assert now == MemoryNow(70, 20, 7, 150, {"s": 9, "p": 8, "q": 2}, "b", 30, 50)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 400),
            st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 100), st.integers(0, 100)), max_size=3),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, 300),
)
def test_parts_add_up_and_no_peak_is_lost_however_long_it_goes_on(steps, tail):
    at, said, recorder, highest = 0, [worker(name) for name in "abc"], MemoryRecorder(at=0), 0
    for wait, numbers in steps:
        at += wait * SECOND
        there = dict(zip(said, (levels(process, p=p, q=q) for process, p, q in numbers), strict=False))
        for presence, level in there.items():
            presence.memory = level
        recorder.follow(ClusterMemory.of(there), at=at)
        highest = max(highest, sum(process for process, _, _ in numbers))
    found = recorder.timeline(at=at + tail * SECOND + 1)
    assert found.bins <= MAX_BINS
    assert found.cluster.peak == highest
    for line in (found.cluster, *found.workers.values()):
        assert {len(line.process), len(line.managed), len(line.spilled)} == {found.bins}
    parts = found.cluster.prefixes.values()
    assert [sum(row) for row in zip(*parts, strict=True)] == list(found.cluster.managed) or not any(
        found.cluster.managed
    )
    # a part of it is the same, bin by bin
    later = recorder.timeline(at=at + tail * SECOND + 1, start=at)
    assert found.cluster.process[-later.bins :] == later.cluster.process


def test_a_timeline_that_is_sent_has_so_many_workers_and_their_bins_are_bounded():
    every = {worker(str(i)): levels(i + 1) for i in range(MAX_WORKERS + 3)}
    found = recorded((0.1, every), until=10_000)
    assert (len(found.workers), found.more_workers) == (MAX_WORKERS, 3)
    assert found.bins <= MAX_BINS
    # a worker's minute: three numbers of eight bytes for each bin of a second or more
    assert 60 * SECOND // found.bin_ns * 24 <= 2_000
    with pytest.raises(KeyError):
        found.workers["0"]


def test_a_new_worker_takes_the_place_of_the_absent_one_that_was_furthest_from_its_limit():
    first = {worker(f"old-{i}"): levels(i + 1) for i in range(MAX_FOLLOWED)}
    stays = dict([*first.items()][:1])  # the emptiest, but it is there
    new = {worker("new-0"): levels(99), worker("new-1"): levels(98)}
    recorder = MemoryRecorder(at=0)
    for at, said in ((1, first), (2, stays), (3, stays | new)):
        for presence, level in said.items():
            presence.memory = level
        recorder.follow(ClusterMemory.of(said), at=at * SECOND)
    names = recorder._workers.keys()
    assert len(names) == MAX_FOLLOWED
    assert {"old-0", "old-3", "new-0", "new-1"} <= names
    assert not {"old-1", "old-2"} & names


def test_the_limit_of_a_cluster_is_that_of_its_workers_when_most_was_taken_in_these_bins():
    many = {worker(str(i)): levels(1) for i in range(10)}
    few = dict([*many.items()][:2])
    recorder = MemoryRecorder(at=0)
    for at, said in ((0, many), (5, few), (9, few)):
        for presence in said:
            presence.memory = levels(20 + at)
        recorder.follow(ClusterMemory.of(said), at=at * SECOND)
    assert recorder.timeline(at=10 * SECOND).cluster.limit == 1_000
    assert recorder.timeline(at=10 * SECOND, start=6 * SECOND).cluster.limit == 200


def test_where_one_worker_has_no_limit_the_cluster_has_none():
    a, b = worker("a"), worker("b", 0)
    assert recorded((0.1, {a: levels(10), b: levels(500)}), until=1).cluster.limit == 0
    assert recorded((0.1, {a: levels(10)}), until=1).cluster.limit == 100
