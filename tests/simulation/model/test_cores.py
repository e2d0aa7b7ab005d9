from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.simulation.model.cores import EnoughCores, FewCores
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.processor import Needs


def ends(cores: FewCores | EnoughCores, clock: EventHeap, bursts: list[tuple[int, int]]) -> list[int]:
    """When computations that come at these times and take so long end, in the order in which they come."""
    found: list[int] = []
    for at, ns in sorted(bursts):
        clock.at(at, lambda ns=ns: found.append(cores.take(ns)))
    while clock.step():
        pass
    return found


def test_the_third_computation_waits_for_the_first_of_two_cores() -> None:
    clock = EventHeap()
    assert ends(FewCores(clock, 2, 0.0, 0), clock, [(0, 10), (0, 30), (1, 5), (100, 1)]) == [10, 30, 15, 101]


def test_with_enough_cores_nothing_waits() -> None:
    clock = EventHeap()
    assert ends(EnoughCores(clock), clock, [(0, 10), (0, 30), (1, 5)]) == [10, 30, 6]


BURSTS = st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(0, 2_000_000)), max_size=30)


@settings(max_examples=40)
@given(BURSTS, st.integers(1, 4), st.floats(0, 2), st.integers(0, 3))
def test_cores_work_no_faster_than_they_can(
    bursts: list[tuple[int, int]], count: int, background: float, seed: int
) -> None:
    clock, again, free = EventHeap(), EventHeap(), EventHeap()
    found = ends(FewCores(clock, count, background, seed), clock, bursts)
    assert found == ends(FewCores(again, count, background, seed), again, bursts)
    assert all(end >= at + ns for end, (at, ns) in zip(found, sorted(bursts), strict=True))
    alone = ends(FewCores(free, count, 0.0, seed), free, bursts)
    if bursts:
        assert max(found) >= max(alone)
        assert max(alone) >= min(bursts)[0] + sum(ns for _, ns in bursts) / count


@pytest.mark.parametrize("background", [0.5, 1.0])
def test_what_goes_on_in_the_background_takes_its_share(background: float) -> None:
    clock = EventHeap()
    found = ends(
        FewCores(clock, 2, background, 0),
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
        ends(FewCores(clock, 1, 0.5, seed), clock, bursts)
        for clock, seed in zip(clocks, ("0 a", "0 a", "0 b"), strict=True)
    ]
    assert found[0] == found[1] != found[2]


def test_tasks_that_compute_share_what_loops_and_the_background_leave() -> None:
    clock, found = EventHeap(), []
    cores = FewCores(clock, 2, 0.5, 0)
    for process in ("a", "b"):
        cores.threads.run(process, 6_000_000, Needs(cpu=1.0), lambda: found.append(clock.now))
    clock.at(1_000_000, cores.take, 600_000)
    while clock.step():
        pass
    # Two threads on one core and a half take 8 ms; a loop takes 0.6 ms of it.
    assert found == [pytest.approx(8_400_000, abs=10)] * 2
