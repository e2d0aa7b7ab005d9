from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.simulation.model.cores import HostCores, Needs, Processor, fair_shares
from dask_efficiency.simulation.model.events import EventHeap

MS = 1_000_000


def ends_of(
    threads: Sequence[tuple[str, float, float, Needs]], cores: float = inf, bursts: Sequence[tuple[int, int]] = ()
) -> list[float]:
    """When threads of processes end, by when they begin and how long they take alone, in ms; bursts go first."""
    clock = EventHeap()
    processor = Processor(clock, cores)
    found = [-1.0] * len(threads)
    for i, (process, at, ms, needs) in enumerate(threads):
        done = lambda i=i: found.__setitem__(i, clock.now / MS)  # noqa: E731
        clock.at(round(at * MS), processor.run, process, round(ms * MS), needs, done)
    for at, ms in bursts:
        clock.at(at * MS, processor.give_way, ms * MS)
    clock.run()
    assert not len(processor)
    return found


PYTHON, COMPUTES, GPU = Needs(held=1.0), Needs(cpu=1.0), Needs(gpu=1.0)

#: Threads, on some cores; when they end.
THREADS = {
    "a thread alone takes as long as alone": ([("a", 0, 10, PYTHON)], inf, [10]),
    "two of pure Python take twice as long": ([("a", 0, 10, PYTHON)] * 2, inf, [20, 20]),
    # The first does 4 ms alone and 6 ms at half speed; then the second has 4 ms left.
    "a later one slows the rest of the first": ([("a", 0, 10, PYTHON), ("a", 4, 10, PYTHON)], inf, [16, 20]),
    # Each waits for a fifth of its time, and a bit more by the approximation.
    "threads that hold the lock for half of their time queue for it": (
        [("a", 0, 10, Needs(held=0.5)), ("a", 0, 10, Needs(held=0.5)), ("a", 0, 9, Needs())],
        inf,
        [13.09, 13.09, 9],
    ),
    # The second has the lock at all times, and is met at it: 2 ms of 10 are doubled.
    "a thread that needs little of the lock waits for it as often": (
        [("a", 0, 10, Needs(held=0.2)), ("a", 0, 10, PYTHON)],
        inf,
        [12, 13],
    ),
    "kernels share the GPU": ([("a", 0, 10, GPU)] * 2, inf, [20, 20]),
    "the lock is not the GPU": ([("a", 0, 10, GPU), ("a", 0, 10, PYTHON)], inf, [10, 10]),
    "each process has its own lock": ([("a", 0, 10, PYTHON), ("b", 0, 10, PYTHON)], inf, [10, 10]),
    "three threads on two cores": ([(name, 0, 10, COMPUTES) for name in "abc"], 2.0, [15, 15, 15]),
    "three threads on three cores": ([(name, 0, 10, COMPUTES) for name in "abc"], 3.0, [10, 10, 10]),
    "a thread that sleeps leaves its core to others": (
        [("a", 0, 10, COMPUTES), ("b", 0, 10, COMPUTES), ("c", 0, 8, Needs(cpu=0.01))],
        2.0,
        [10, 10, 8],
    ),
    # It gets half a core; the others share the rest.
    "a thread that needs half a core": (
        [("a", 0, 10, COMPUTES), ("b", 0, 10, COMPUTES), ("c", 0, 20, Needs(cpu=0.5))],
        2.0,
        [40 / 3, 40 / 3, 20],
    ),
}


@pytest.mark.parametrize(("threads", "cores", "ends"), THREADS.values(), ids=THREADS)
def test_threads_share_cores_and_those_of_a_process_its_lock_and_its_gpu(
    threads: list[tuple[str, float, float, Needs]], cores: float, ends: list[float]
) -> None:
    assert ends_of(threads, cores) == pytest.approx(ends, abs=2e-6, rel=1e-4)


def test_short_computations_take_their_time_from_threads_that_fill_the_cores() -> None:
    for threads, cores, end in ((2, 2.0, 12), (2, 3.0, 10), (1, 1.5, 12)):
        given = [(str(i), 0, 10, COMPUTES) for i in range(threads)]
        assert ends_of(given, cores, bursts=[(2, 4)]) == [end] * threads


RUNS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50), st.floats(0.02, 1)), min_size=1, max_size=6)


@given(RUNS, st.floats(0.5, 4), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=5))
def test_threads_use_no_more_cores_than_there_are(
    threads: list[tuple[int, int, float]], cores: float, bursts: list[tuple[int, int]]
) -> None:
    found = ends_of([(str(i), at, ms, Needs(cpu)) for i, (at, ms, cpu) in enumerate(threads)], cores, bursts)
    assert all(end >= at + ms - 1e-5 for end, (at, ms, _) in zip(found, threads, strict=True))
    work = sum(ms * cpu for _, ms, cpu in threads)
    assert max(found) - min(at for at, _, _ in threads) >= work / cores - 1e-4


@given(RUNS)
def test_the_lock_is_never_held_for_longer_than_there_is_time(threads: list[tuple[int, int, float]]) -> None:
    found = ends_of([("a", at, ms, Needs(held=held)) for at, ms, held in threads])
    assert all(end >= at + ms - 1e-5 for end, (at, ms, _) in zip(found, threads, strict=True))
    assert max(found) <= max(at + ms for at, ms, _ in threads) + sum(ms * held for _, ms, held in threads) + 1e-4


@given(st.lists(st.floats(0, 1), max_size=6), st.floats(0, 4))
def test_shares_are_fair_of_any_capacity(demands: list[float], capacity: float) -> None:
    shares = fair_shares(demands, capacity)
    assert all(share <= demand for share, demand in zip(shares, demands, strict=True))
    assert sum(shares) == pytest.approx(min(capacity, sum(demands)))
    short = [share for share, demand in zip(shares, demands, strict=True) if share < demand - 1e-12]
    assert all(share == pytest.approx(max(shares)) for share in short)


def ends(bursts: list[tuple[int, int]], *host: object) -> list[int]:
    """When computations that come at these nanoseconds and take so long end, in the order in which they come."""
    clock, found = EventHeap(), list[int]()
    cores = HostCores(clock, *host)  # type: ignore[arg-type]
    for at, ns in sorted(bursts):
        clock.at(at, lambda ns=ns: found.append(cores.take(ns)))
    clock.run()
    return found


def test_the_third_computation_waits_for_the_first_of_two_cores() -> None:
    bursts = [(0, 10), (0, 30), (1, 5), (100, 1)]
    assert ends(bursts, 2) == [10, 30, 15, 101]
    assert ends(bursts) == [10, 30, 6, 101]  # with enough cores


BURSTS = st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(0, 2_000_000)), max_size=30)


@settings(max_examples=40)
@given(BURSTS, st.integers(1, 4), st.floats(0, 2), st.integers(0, 3))
def test_cores_work_no_faster_than_they_can(
    bursts: list[tuple[int, int]], count: int, background: float, seed: int
) -> None:
    found, alone = ends(bursts, count, background, seed), ends(bursts, count, 0.0, seed)
    assert found == ends(bursts, count, background, seed)
    assert all(end >= at + ns for end, (at, ns) in zip(found, sorted(bursts), strict=True))
    if bursts:
        assert max(found) >= max(alone)
        assert max(alone) >= min(bursts)[0] + sum(ns for _, ns in bursts) / count


@pytest.mark.parametrize("background", [0.5, 1.0])
def test_work_in_the_background_takes_its_share(background: float) -> None:
    bursts = [(i * 1000, 1000) for i in range(1, 10_000, 2)]
    found = ends([(0, 1_000_000)] * 2 + bursts, 2, background, 0)[2:]
    # What is left of two cores would do all of this in time, but pieces of half a millisecond come in between.
    waits = sum(end - at - 1000 for end, (at, _) in zip(found, bursts, strict=True)) / len(found)
    assert 100 < waits < 500_000


def test_each_host_has_a_background_of_its_own() -> None:
    bursts = [(i * 100_000, 1000) for i in range(1, 100)]
    found = [ends(bursts, 1, 0.5, seed) for seed in ("0 a", "0 a", "0 b")]
    assert found[0] == found[1] != found[2]


def test_computing_tasks_share_the_time_that_loops_and_the_background_leave() -> None:
    clock, found = EventHeap(), []
    cores = HostCores(clock, 2, 0.5, 0)
    for process in ("a", "b"):
        cores.threads.run(process, 6_000_000, COMPUTES, lambda: found.append(clock.now))
    clock.at(1_000_000, cores.take, 600_000)
    clock.run()
    # Two threads on one core and a half take 8 ms; a loop takes 0.6 ms of it.
    assert found == [pytest.approx(8_400_000, abs=10)] * 2
