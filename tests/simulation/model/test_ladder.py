from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import pytest

from dask_efficiency import RunTrace, critical_path
from dask_efficiency.simulation.model.ensemble import Simulated, SimulationJob
from dask_efficiency.simulation.model.ladder import MEASURED, IdealLadder, ladder
from dask_efficiency.simulation.model.run_figures import makespan_seconds
from tests.simulation.fake_engine import FakeEngine, recorded


def with_medians(trace: RunTrace, *seconds: float) -> IdealLadder:
    """The ladder of a run whose simulations take these seconds, with one part after the other gone."""

    def engine(
        trace: RunTrace,
        job: SimulationJob,
        seeds: Sequence[int],
        *,
        traces: Collection[int] = (),
        processes: int | None = None,
    ) -> list[Simulated]:
        return [Simulated(seed, seconds[len(job.without)], {}) for seed in seeds]

    return ladder(engine, trace, range(3))


def test_parts_go_one_after_the_other() -> None:
    engine, trace = FakeEngine(), recorded()
    found = ladder(engine, trace, range(3))
    assert [sorted(job.without) for job in engine.jobs] == [
        [],
        ["spill"],
        ["spill", "transfer"],
        ["scheduler", "spill", "transfer"],
    ]
    assert {job.cluster for job in map(str_cluster, engine.jobs)} == {str_cluster(engine.jobs[0]).cluster}
    assert found.rungs[0].name == MEASURED
    assert found.rungs[0].seconds == makespan_seconds(trace)


def str_cluster(job: SimulationJob) -> SimulationJob:
    """Clusters that can be compared as members of a set."""
    return SimulationJob(str(job.cluster))  # type: ignore[arg-type]


def test_the_last_steps_are_the_bounds_of_the_path() -> None:
    trace = recorded()
    path = critical_path(trace)
    *_, full, any_cluster, no_waiting = ladder(FakeEngine(), trace, range(3)).rungs
    assert full.seconds == path.slot_bound_seconds
    assert any_cluster.seconds == path.floor_seconds
    assert no_waiting.seconds == path.chain_seconds
    assert full.simulated_seconds is None


def test_it_never_rises_from_the_simulated_run_on() -> None:
    trace = recorded()
    whole = makespan_seconds(trace)
    found = with_medians(trace, whole, 0.97 * whole, 1.02 * whole, 0.95 * whole)
    seconds = [rung.seconds for rung in found.rungs]
    assert all(upper >= lower for upper, lower in pairwise(seconds))
    assert found.worth["no transfers"] == 0.0
    assert found.rungs[3].simulated_seconds == pytest.approx(1.02 * whole)


def test_it_is_never_below_what_all_slots_need() -> None:
    trace = recorded()
    whole = makespan_seconds(trace)
    found = with_medians(trace, whole, whole, 0.5 * whole, 0.01 * whole)
    bound = critical_path(trace).slot_bound_seconds
    assert found.rungs[4].seconds == bound
    assert found.rungs[4].simulated_seconds == pytest.approx(0.01 * whole)


def test_what_the_simulation_is_off_by_is_no_saving() -> None:
    trace = recorded()
    whole = makespan_seconds(trace)
    found = with_medians(trace, 1.03 * whole, 1.0 * whole, 0.98 * whole, 0.97 * whole)
    assert found.worth["simulated as it was"] == pytest.approx(-0.03 * whole)
    assert found.worth["no spill"] == pytest.approx(0.03 * whole)


def test_steps_add_up_to_the_way_from_the_run_to_the_floor() -> None:
    found = ladder(FakeEngine(), recorded(), range(3))
    assert sum(found.worth.values()) == pytest.approx(found.rungs[0].seconds - found.rungs[-1].seconds)
