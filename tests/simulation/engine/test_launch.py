from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from dask_efficiency import RunTrace, load_trace
from dask_efficiency.runs.path.path import CriticalPath
from dask_efficiency.runs.path.scope import Question
from dask_efficiency.simulation.engine import launch
from dask_efficiency.simulation.engine.launch import SimulationError, simulate_jobs
from dask_efficiency.simulation.model import ensemble as module
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import SeededJob, SimulationJob, Wanted
from tests.runs.trace.equal import assert_same


@pytest.fixture(scope="module")
def trace() -> RunTrace:
    return load_trace(Path(__file__).parents[2] / "data" / "simulation" / "flat.trace")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Popen[bytes]]:
    """Processes that are started."""
    processes: list[Popen[bytes]] = []

    def start(*arguments: Any, **options: Any) -> Popen[bytes]:
        processes.append(Popen(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(launch, "Popen", start)
    return processes


def job(trace: RunTrace, workers: int) -> SimulationJob:
    return SimulationJob(ClusterSpec.from_trace(trace).with_workers(workers))


def test_all_jobs_are_simulated_by_the_same_processes(trace: RunTrace, started: list[Popen[bytes]]) -> None:
    together = [SeededJob(job(trace, workers), (2, 0, 1)) for workers in (1, 4)]
    reported: list[float] = []
    found = list(simulate_jobs(trace, together, processes=2, report=reported.append))
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)
    assert [list(runs.makespans) for runs in found] == [[2, 0, 1]] * 2
    assert [len(runs.trace.workers) for runs in found if runs.trace] == [1, 4]
    assert reported == sorted(reported)
    assert reported[-1] == 6
    for seeded, runs in zip(together, found, strict=True):
        (alone,) = simulate_jobs(trace, [SeededJob(seeded.job, [runs.nearest])])
        assert alone.makespans == {runs.nearest: runs.makespans[runs.nearest]}
        assert_same(alone.trace, runs.trace)  # type: ignore[arg-type]


def test_the_median_run_of_many_tasks_is_simulated_again_for_its_trace(trace: RunTrace, monkeypatch: Any) -> None:
    jobs = [SeededJob(job(trace, 2), range(3)), SeededJob(job(trace, 3), range(2), Wanted.NOTHING)]
    once = list(simulate_jobs(trace, jobs))
    monkeypatch.setattr(module, "MAX_TRACED", 100)
    reported: list[float] = []
    again = list(simulate_jobs(trace, jobs, report=reported.append))
    assert [runs.makespans for runs in again] == [runs.makespans for runs in once]
    assert_same(again[0].trace, once[0].trace)  # type: ignore[arg-type]
    assert again[1].trace is None
    assert reported[-1] == 6


def test_kinds_are_those_of_the_median_runs_path(trace: RunTrace) -> None:
    jobs = [SeededJob(job(trace, 2), range(3), wanted) for wanted in Wanted]
    nothing, kinds, traced = simulate_jobs(trace, jobs)
    assert nothing.makespans == kinds.makespans == traced.makespans
    assert not nothing.kinds
    assert traced.trace is not None
    assert kinds.kinds == CriticalPath.of(traced.trace, Question()).seconds("kind")


def test_an_ensemble_that_nobody_waits_for_is_not_simulated(
    trace: RunTrace, started: list[Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "CPU_COUNT", 8)
    found = simulate_jobs(trace, [SeededJob(job(trace, 2), [0], Wanted.NOTHING)] * 9)
    next(found)
    found.close()
    assert len(started) == 2  # though each of the jobs has one seed
    assert all(process.poll() is not None for process in started)


def test_when_time_is_up_the_runs_are_missing_and_the_processes_end(
    trace: RunTrace, started: list[Popen[bytes]]
) -> None:
    none = list(simulate_jobs(trace, [SeededJob(job(trace, n), [0, 1]) for n in (2, 3)], seconds=0.0))
    assert [runs.makespans for runs in none] == [{}, {}]
    assert all(process.poll() is not None for process in started)


def test_a_process_that_cannot_start_says_why(trace: RunTrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_MODULE", "dask_efficiency.no_such_module")
    with pytest.raises(SimulationError, match="ended with code 1: .*no_such_module"):
        list(simulate_jobs(trace, [SeededJob(job(trace, 2), [0])]))
