"""Dask's scheduler and workers under virtual time: that it is Dask, and that a seed decides everything."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dask_efficiency import RunTrace, critical_path, load_trace
from dask_efficiency.simulation.engine.launch import SimulationError, simulate_jobs
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import SeededJob, SimulationJob
from dask_efficiency.simulation.model.result import own_job
from tests import simulated_traces
from tests.runs.trace.equal import assert_same
from tests.simulation.cold_trace import COLD, cold_trace

DATA = Path(__file__).parents[2] / "data" / "simulation"


def simulated(trace: RunTrace, seed: int = 0, **job: object) -> RunTrace:
    of_trace = SimulationJob(ClusterSpec.from_trace(trace), **job)  # type: ignore[arg-type]
    (runs,) = simulate_jobs(trace, [SeededJob(of_trace, [seed])])
    assert runs.trace is not None
    return runs.trace


def started(trace: RunTrace) -> list[str]:
    runs = trace.runs
    return [trace.keys[task] for task in runs.task[np.argsort(runs.start, kind="stable")]]


@pytest.fixture(scope="module")
def recorded() -> RunTrace:
    return load_trace(DATA / "four_workers.trace")


@pytest.fixture(scope="module")
def replayed(recorded: RunTrace) -> RunTrace:
    return simulated(recorded, validate=True)


def test_every_task_has_its_prefix_span_priority_and_inputs(recorded: RunTrace, replayed: RunTrace) -> None:
    def facts(trace: RunTrace) -> dict[str, tuple[object, ...]]:
        tasks, starts = trace.tasks, trace.dependency_starts
        columns = (tasks.wanted, tasks.nbytes, tasks.priority_user, tasks.priority_graph, tasks.priority_order)
        return {
            key: (
                trace.prefixes[tasks.prefix[i]],
                trace.spans[tasks.span[i]],
                [int(column[i]) for column in columns],
                {trace.keys[j] for j in trace.dependencies[starts[i] : starts[i + 1]]},
            )
            for i, key in enumerate(trace.keys)
        }

    assert facts(replayed) == facts(recorded)


def test_every_task_computes_once_and_for_as_long_as_it_did(recorded: RunTrace, replayed: RunTrace) -> None:
    def took(trace: RunTrace) -> dict[str, int]:
        keys = [trace.keys[task] for task in trace.runs.task]
        return dict(zip(keys, (trace.runs.stop - trace.runs.start).tolist(), strict=True))

    before, after = took(recorded), took(replayed)
    assert len(replayed.runs) == len(replayed.tasks)
    # No worker was slower than the others, so rounding is the only change.
    assert before.keys() == after.keys()
    assert max(abs(after[key] - before[key]) for key in before) <= 1


def test_nothing_begins_before_its_inputs_are_there_and_no_slot_has_two_tasks(replayed: RunTrace) -> None:
    runs, starts = replayed.runs, replayed.dependency_starts
    run_of = {int(task): i for i, task in enumerate(runs.task)}
    for task, i in run_of.items():
        for needed in replayed.dependencies[starts[task] : starts[task + 1]]:
            assert runs.ended[run_of[int(needed)]] <= runs.start[i]
    place = runs.worker.astype(np.int64) * 100 + runs.slot
    order = np.lexsort((runs.executing, place))
    same = place[order][1:] == place[order][:-1]
    assert (runs.executing[order][1:] >= runs.ended[order][:-1])[same].all()


def test_one_worker_of_one_thread_begins_its_tasks_in_the_recorded_order() -> None:
    trace = load_trace(DATA / "one_worker.trace")
    before, after = started(trace), started(simulated(trace))
    assert len(before) == len(after) == 401
    assert np.mean([one == other for one, other in zip(before, after, strict=True)]) >= 0.99


def test_a_seed_is_the_same_run_in_every_process(
    recorded: RunTrace, replayed: RunTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result does not depend on the process's allocator, hashes and configuration, nor on earlier runs."""
    scheduler = {"WORK_STEALING": "False", "UNKNOWN_TASK_DURATION": "10s", "PRELOAD": '["no_such_module"]'}
    dask = {f"DASK_DISTRIBUTED__SCHEDULER__{name}": value for name, value in scheduler.items()}
    for name, value in {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "7", **dask}.items():
        monkeypatch.setenv(name, value)
    own = ClusterSpec.from_trace(recorded)
    setting = own.with_workers(2).with_config({"distributed.scheduler.work-stealing": False})
    jobs = [SimulationJob(setting, without=frozenset({"transfer"})), *[SimulationJob(own)] * 2]
    *_, other, again = simulate_jobs(
        recorded, [SeededJob(job, [seed]) for job, seed in zip(jobs, (3, 3, 0), strict=True)], processes=1
    )
    assert again.trace is not None
    assert other.trace is not None
    assert_same(again.trace, replayed)
    assert again.makespans == {0: critical_path(replayed).makespan_seconds}
    assert started(other.trace) != started(replayed)


def test_a_run_reports_its_share_while_it_goes(recorded: RunTrace) -> None:
    shares: list[float] = []
    list(simulate_jobs(recorded, [SeededJob(own_job(recorded), [0])], report=shares.append))
    assert shares == sorted(shares)
    assert any(0.0 < share < 1.0 for share in shares)
    assert shares[-1] == 1.0


def test_a_cold_start_is_paid_once_and_a_simulation_of_the_simulation_agrees() -> None:
    trace = cold_trace()
    once = simulated(trace)
    again = simulated(once)
    assert once.blocked.moving_ns.sum() == pytest.approx(COLD, rel=0.02)
    found = [critical_path(run).makespan_seconds for run in (trace, once, again)]
    assert found[1:] == pytest.approx([found[0]] * 2, rel=0.03)


@pytest.mark.parametrize("make", ["retried", "seceded", "two_computations"])
def test_a_client_gets_all_wanted_results(make: str) -> None:
    trace = getattr(simulated_traces, make)()
    found = simulated(trace, validate=True)
    after, before = ({each.keys[i] for i in np.flatnonzero(each.tasks.wanted)} for each in (found, trace))
    assert after == before
    assert np.array_equal(np.bincount(found.runs.outcome), np.bincount(trace.runs.outcome))


def test_a_worker_asks_for_inputs_that_no_worker_is_known_to_have() -> None:
    """With this seed, a task waits for one that is missing: without asking it would wait for ever."""
    trace = load_trace(DATA / "flat.trace")
    cluster = ClusterSpec.from_file(DATA / "lab.yaml", DATA / "slow-cards.txt")
    (runs,) = simulate_jobs(trace, [SeededJob(SimulationJob(cluster), [4])])
    assert 3.0 < runs.median < 12.0


def test_a_run_that_stands_still_names_the_tasks_that_wait(recorded: RunTrace) -> None:
    task = int(np.flatnonzero(recorded.tasks.wanted)[0])
    needed = int(recorded.dependencies[recorded.dependency_starts[task]])
    trace = replace(recorded, constraints={needed: {"resources": {"GPU": 1.0}}})
    with pytest.raises(SimulationError, match="stands still") as error:
        simulated(trace)
    assert recorded.keys[task] in str(error.value)
    (runs,) = simulate_jobs(trace, [SeededJob(own_job(trace), [0], may_stand_still=True)])
    assert "stands still" in runs.stands_still
    assert not runs.makespans
