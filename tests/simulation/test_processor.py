from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.simulation.events import EventHeap
from dask_efficiency.simulation.processor import Processor, fair_shares

MS = 1_000_000


def ends(*threads: tuple[int, int, float, float]) -> list[int]:
    """When threads end that begin at some instant, take so long alone, and need so much of the lock and the GPU."""
    clock = EventHeap()
    processor = Processor(clock)
    found = [-1] * len(threads)
    for i, (at, ns, held, gpu) in enumerate(threads):

        def begin(i: int = i, ns: int = ns, held: float = held, gpu: float = gpu) -> None:
            processor.run(ns, held, gpu, lambda: found.__setitem__(i, clock.now))

        clock.at(at, begin)
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
