from __future__ import annotations

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.simulation.model.cores import HostCores, Needs, Processor, fair_shares
from dask_efficiency.simulation.model.events import EventHeap

MS = 1_000_000


def thread_ends(*threads: tuple[int, int, float, float]) -> list[int]:
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


#: When threads begin and how long they take alone, in milliseconds, their needs of the lock and the GPU; when they end.
THREADS = {
    "a thread alone takes as long as alone": ([(0, 10, 1.0, 0.0)], [10]),
    "two of pure Python take twice as long": ([(0, 10, 1.0, 0.0)] * 2, [20, 20]),
    # The first does 4 ms alone and 6 ms at half speed; then the second has 4 ms left.
    "a later one slows the rest of the first": ([(0, 10, 1.0, 0.0), (4, 10, 1.0, 0.0)], [16, 20]),
    "who seldom holds the lock slows nobody": ([(0, 10, 0.5, 0.0), (0, 12, 0.4, 0.0), (0, 9, 0.0, 0.0)], [10, 12, 9]),
    # 0.2 + 1.0 is more than there is: the second has 0.8 of it until the first ends.
    "who needs little of the lock gets it": ([(0, 10, 0.2, 0.0), (0, 10, 1.0, 0.0)], [10, 12]),
    "kernels share the GPU": ([(0, 10, 0.0, 1.0)] * 2, [20, 20]),
    "the lock is another matter than the GPU": ([(0, 10, 0.0, 1.0), (0, 10, 1.0, 0.0)], [10, 10]),
}


@pytest.mark.parametrize(("threads", "ends"), THREADS.values(), ids=THREADS)
def test_threads_of_a_process_share_its_lock_and_its_gpu(
    threads: list[tuple[int, int, float, float]], ends: list[int]
) -> None:
    found = thread_ends(*((at * MS, ms * MS, held, gpu) for at, ms, held, gpu in threads))
    assert found == [end * MS for end in ends]


COMPUTES = Needs(cpu=1.0)


def test_each_process_has_a_lock_of_its_own() -> None:
    python = Needs(1.0, 1.0, 0.0)
    assert ends_of([("a", 0, 10 * MS, python), ("b", 0, 10 * MS, python)]) == [10 * MS, 10 * MS]


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
    shares = fair_shares(demands, capacity)
    assert all(share <= demand for share, demand in zip(shares, demands, strict=True))
    assert sum(shares) == pytest.approx(min(capacity, sum(demands)))
    short = [share for share, demand in zip(shares, demands, strict=True) if share < demand - 1e-12]
    assert all(share == pytest.approx(max(shares)) for share in short)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50), st.floats(0.01, 1)), min_size=1, max_size=6))
def test_the_lock_is_never_held_for_longer_than_there_is_time(threads: list[tuple[int, int, float]]) -> None:
    found = thread_ends(*((at * MS, ns * MS, held, 0.0) for at, ns, held in threads))
    assert all(end >= (at + ns) * MS - 10 for end, (at, ns, _) in zip(found, threads, strict=True))
    work = sum(ns * held for _, ns, held in threads) * MS
    alone = max(at + ns for at, ns, _ in threads) * MS
    assert max(found) <= alone + work + 100


def ends(cores: HostCores, clock: EventHeap, bursts: list[tuple[int, int]]) -> list[int]:
    """When computations that come at these times and take so long end, in the order in which they come."""
    found: list[int] = []
    for at, ns in sorted(bursts):
        clock.at(at, lambda ns=ns: found.append(cores.take(ns)))
    while clock.step():
        pass
    return found


def test_the_third_computation_waits_for_the_first_of_two_cores() -> None:
    clock = EventHeap()
    assert ends(HostCores(clock, 2, 0.0, 0), clock, [(0, 10), (0, 30), (1, 5), (100, 1)]) == [10, 30, 15, 101]


def test_with_enough_cores_nothing_waits() -> None:
    clock = EventHeap()
    assert ends(HostCores(clock), clock, [(0, 10), (0, 30), (1, 5)]) == [10, 30, 6]


BURSTS = st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(0, 2_000_000)), max_size=30)


@settings(max_examples=40)
@given(BURSTS, st.integers(1, 4), st.floats(0, 2), st.integers(0, 3))
def test_cores_work_no_faster_than_they_can(
    bursts: list[tuple[int, int]], count: int, background: float, seed: int
) -> None:
    clock, again, free = EventHeap(), EventHeap(), EventHeap()
    found = ends(HostCores(clock, count, background, seed), clock, bursts)
    assert found == ends(HostCores(again, count, background, seed), again, bursts)
    assert all(end >= at + ns for end, (at, ns) in zip(found, sorted(bursts), strict=True))
    alone = ends(HostCores(free, count, 0.0, seed), free, bursts)
    if bursts:
        assert max(found) >= max(alone)
        assert max(alone) >= min(bursts)[0] + sum(ns for _, ns in bursts) / count


@pytest.mark.parametrize("background", [0.5, 1.0])
def test_what_goes_on_in_the_background_takes_its_share(background: float) -> None:
    clock = EventHeap()
    found = ends(
        HostCores(clock, 2, background, 0),
        clock,
        [(0, 1_000_000)] * 2 + [(i * 1000, 1000) for i in range(1, 10_000, 2)],
    )
    # What is left of two cores would do all of this in time, but pieces of half a millisecond come in between.
    waits = sum(end - at - 1000 for end, at in zip(found[2:], range(1000, 10_000_000, 2000), strict=True)) / len(found)
    assert 100 < waits < 500_000


def test_each_host_has_a_background_of_its_own() -> None:
    bursts = [(i * 100_000, 1000) for i in range(1, 100)]
    clocks = [EventHeap() for _ in range(3)]
    found = [
        ends(HostCores(clock, 1, 0.5, seed), clock, bursts)
        for clock, seed in zip(clocks, ("0 a", "0 a", "0 b"), strict=True)
    ]
    assert found[0] == found[1] != found[2]


def test_tasks_that_compute_share_what_loops_and_the_background_leave() -> None:
    clock, found = EventHeap(), []
    cores = HostCores(clock, 2, 0.5, 0)
    for process in ("a", "b"):
        cores.threads.run(process, 6_000_000, Needs(cpu=1.0), lambda: found.append(clock.now))
    clock.at(1_000_000, cores.take, 600_000)
    while clock.step():
        pass
    # Two threads on one core and a half take 8 ms; a loop takes 0.6 ms of it.
    assert found == [pytest.approx(8_400_000, abs=10)] * 2
