from itertools import pairwise

import pytest

from dask_efficiency import RunTrace, critical_path
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob
from dask_efficiency.simulation.model.ladder import MEASURED, IdealLadder, ladder, ladder_jobs
from dask_efficiency.simulation.model.result import SelfReplay
from dask_efficiency.simulation.model.run_figures import RunFigures, makespan_seconds
from tests.simulation.fake_engine import FakeEngine, recorded


def with_medians(trace: RunTrace, *seconds: float) -> IdealLadder:
    """The ladder of a run whose simulations take these seconds, with one part after the other gone."""
    own, *without = (Ensemble(dict.fromkeys(range(3), took)) for took in seconds)
    return ladder(trace, SelfReplay(RunFigures.of(trace), own), without)


def simulated(trace: RunTrace) -> IdealLadder:
    """The ladder of a run that is simulated."""
    own, *without = FakeEngine()(trace, [SeededJob(job, range(3)) for job in ladder_jobs(trace)])
    return ladder(trace, SelfReplay(RunFigures.of(trace), own), without)


def test_parts_are_removed_one_after_the_other() -> None:
    trace = recorded()
    jobs, found = ladder_jobs(trace), simulated(trace)
    parts = [set(), {"spill"}, {"spill", "transfer"}, {"spill", "transfer", "scheduler"}]
    assert [job.without for job in jobs] == parts
    assert all(job.cluster == jobs[0].cluster for job in jobs)
    assert found.rungs[0].name == MEASURED
    assert found.rungs[0].seconds == makespan_seconds(trace)
    assert sum(found.worth.values()) == pytest.approx(found.rungs[0].seconds - found.rungs[-1].seconds)


def test_the_last_steps_are_the_bounds_of_the_path() -> None:
    trace = recorded()
    path = critical_path(trace)
    *_, full, any_cluster, no_waiting = simulated(trace).rungs
    assert full.seconds == path.slot_bound_seconds
    assert any_cluster.seconds == path.floor_seconds
    assert no_waiting.seconds == path.chain_seconds
    assert full.simulated_seconds is None


def test_no_step_is_above_the_one_before_it_or_below_its_bound() -> None:
    trace = recorded()
    whole = makespan_seconds(trace)
    found = with_medians(trace, whole, 0.97 * whole, 1.02 * whole, 0.01 * whole)
    assert all(upper.seconds >= lower.seconds for upper, lower in pairwise(found.rungs))
    assert found.worth["no transfers"] == 0.0
    assert [rung.simulated_seconds for rung in found.rungs[3:5]] == pytest.approx([1.02 * whole, 0.01 * whole])
    assert found.rungs[4].seconds == critical_path(trace).slot_bound_seconds


def test_the_error_of_the_simulation_is_no_saving() -> None:
    trace = recorded()
    whole = makespan_seconds(trace)
    found = with_medians(trace, 1.03 * whole, 1.0 * whole, 0.98 * whole, 0.97 * whole)
    assert found.worth["simulated as it was"] == pytest.approx(-0.03 * whole)
    assert found.worth["no spill"] == pytest.approx(0.03 * whole)
