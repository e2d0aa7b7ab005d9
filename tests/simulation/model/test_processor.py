from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.processor import Needs, Processor, fair_shares

MS = 1_000_000


def ends(*threads: tuple[int, int, float, float]) -> list[int]:
    """When threads end that begin at some instant, take so long alone, and need so much of the lock and the GPU."""
    return ends_of([("worker", at, ns, Needs(0.0, held, gpu)) for at, ns, held, gpu in threads])


def ends_of(
    threads: list[tuple[str, int, int, Needs]], cores: float = inf, bursts: Sequence[tuple[int, int]] = ()
) -> list[int]:
    """When threads of some processes end, if they have so many cores, and short computations go first."""
    clock = EventHeap()
    processor = Processor(clock, cores)
    found = [-1] * len(threads)
    for i, (process, at, ns, needs) in enumerate(threads):
        clock.at(at, processor.run, process, ns, needs, lambda i=i: found.__setitem__(i, clock.now))
    for at, ns in bursts:
        clock.at(at, processor.give_way, ns)
    while clock.step():
        pass
    assert not len(processor)
    return found


def test_a_thread_alone_takes_as_long_as_alone() -> None:
    assert ends((0, 10 * MS, 1.0, 0.0)) == [10 * MS]


def test_two_threads_of_pure_python_take_twice_as_long() -> None:
    assert ends((0, 10 * MS, 1.0, 0.0), (0, 10 * MS, 1.0, 0.0)) == [20 * MS, 20 * MS]


def test_a_thread_that_comes_later_slows_the_rest_of_the_first_one() -> None:
    # The first does 4 ms alone and 6 ms at half speed; then the second has 4 ms left.
    assert ends((0, 10 * MS, 1.0, 0.0), (4 * MS, 10 * MS, 1.0, 0.0)) == [16 * MS, 20 * MS]


def test_threads_that_hold_the_lock_seldom_do_not_slow_each_other() -> None:
    assert ends((0, 10 * MS, 0.5, 0.0), (0, 12 * MS, 0.4, 0.0), (0, 9 * MS, 0.0, 0.0)) == [10 * MS, 12 * MS, 9 * MS]


def test_whoever_needs_little_of_the_lock_gets_it() -> None:
    # 0.2 + 1.0 is more than there is: the second has 0.8 of it until the first ends.
    assert ends((0, 10 * MS, 0.2, 0.0), (0, 10 * MS, 1.0, 0.0)) == [10 * MS, 12 * MS]


def test_kernels_of_one_worker_share_its_gpu_and_the_lock_is_another_matter() -> None:
    assert ends((0, 10 * MS, 0.0, 1.0), (0, 10 * MS, 0.0, 1.0)) == [20 * MS, 20 * MS]
    assert ends((0, 10 * MS, 0.0, 1.0), (0, 10 * MS, 1.0, 0.0)) == [10 * MS, 10 * MS]


COMPUTES = Needs(cpu=1.0)


def test_locks_and_gpus_are_those_of_a_process() -> None:
    python = Needs(1.0, 1.0, 0.0)
    assert ends_of([("a", 0, 10 * MS, python), ("b", 0, 10 * MS, python)]) == [10 * MS, 10 * MS]
    assert ends_of([("a", 0, 10 * MS, python), ("a", 0, 10 * MS, python)]) == [20 * MS, 20 * MS]


def test_three_threads_on_two_cores_take_half_as_long_again() -> None:
    threads = [(name, 0, 10 * MS, COMPUTES) for name in "abc"]
    assert ends_of(threads, cores=2.0) == [15 * MS] * 3
    assert ends_of(threads, cores=3.0) == [10 * MS] * 3


def test_a_thread_that_sleeps_leaves_its_core_to_others() -> None:
    threads = [("a", 0, 10 * MS, COMPUTES), ("b", 0, 10 * MS, COMPUTES), ("c", 0, 8 * MS, Needs(cpu=0.01))]
    assert ends_of(threads, cores=2.0) == [10 * MS, 10 * MS, 8 * MS]
    # One that needs half a core gets it; the others share the rest.
    threads[2] = ("c", 0, 20 * MS, Needs(cpu=0.5))
    assert ends_of(threads, cores=2.0) == [pytest.approx(40 / 3 * MS, abs=2)] * 2 + [20 * MS]


def test_short_computations_take_their_time_from_threads_that_fill_the_cores() -> None:
    two = [("a", 0, 10 * MS, COMPUTES), ("b", 0, 10 * MS, COMPUTES)]
    assert ends_of(two, cores=2.0, bursts=[(2 * MS, 4 * MS)]) == [12 * MS] * 2
    assert ends_of(two, cores=3.0, bursts=[(2 * MS, 4 * MS)]) == [10 * MS] * 2
    assert ends_of(two[:1], cores=1.5, bursts=[(2 * MS, 4 * MS)]) == [12 * MS]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50), st.floats(0.02, 1)), min_size=1, max_size=6),
    st.floats(0.5, 4),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=5),
)
def test_no_more_cores_are_used_than_there_are(
    threads: list[tuple[int, int, float]], cores: float, bursts: list[tuple[int, int]]
) -> None:
    given = [(str(i), at * MS, ns * MS, Needs(cpu)) for i, (at, ns, cpu) in enumerate(threads)]
    found = ends_of(given, cores, [(at * MS, ns * MS) for at, ns in bursts])
    assert all(end >= at + ns - 10 for end, (_, at, ns, _) in zip(found, given, strict=True))
    work = sum(ns * needs.cpu for _, _, ns, needs in given)
    assert max(found) - min(at for _, at, _, _ in given) >= work / cores - 100


@given(st.lists(st.floats(0, 1), max_size=6), st.floats(0, 4))
def test_shares_are_fair_of_any_capacity(demands: list[float], capacity: float) -> None:
    assert sum(fair_shares(demands, capacity)) == pytest.approx(min(capacity, sum(demands)))


@given(st.lists(st.floats(0, 1), max_size=6))
def test_shares_are_fair(demands: list[float]) -> None:
    shares = fair_shares(demands)
    assert all(share <= demand for share, demand in zip(shares, demands, strict=True))
    assert sum(shares) == pytest.approx(min(1.0, sum(demands)))
    short = [share for share, demand in zip(shares, demands, strict=True) if share < demand - 1e-12]
    assert all(share == pytest.approx(max(shares)) for share in short)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50), st.floats(0.01, 1)), min_size=1, max_size=6))
def test_the_lock_is_never_held_for_longer_than_there_is_time(threads: list[tuple[int, int, float]]) -> None:
    found = ends(*((at * MS, ns * MS, held, 0.0) for at, ns, held in threads))
    assert all(end >= (at + ns) * MS - 10 for end, (at, ns, _) in zip(found, threads, strict=True))
    work = sum(ns * held for _, ns, held in threads) * MS
    alone = max(at + ns for at, ns, _ in threads) * MS
    assert max(found) <= alone + work + 100
