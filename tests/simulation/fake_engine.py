"""An engine without Dask: the traces of a small scheduler in virtual time, so that all columns are consistent."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from benchmarks import simulated_traces
from dask_efficiency import RunTrace
from dask_efficiency.simulation.model.ensemble import Simulated, SimulationJob
from dask_efficiency.simulation.model.run_figures import makespan_seconds

#: Leaves of the tree that is recorded, and simulated again.
LEAVES = 64


def recorded(**settings: Any) -> RunTrace:
    """A reduction two by two, on four workers of two threads."""
    return replace(simulated_traces.tree(LEAVES, **settings), name="recorded", versions={})


class FakeEngine:
    """Computes :func:`recorded`'s graph on the job's cluster, too long by a factor; notes its jobs."""

    def __init__(self, factor: float = 1.0, **settings: Any) -> None:
        self.factor, self.settings = factor, settings
        self.jobs: list[SimulationJob] = []
        self.traced: list[tuple[int, ...]] = []

    def __call__(
        self, trace: RunTrace, job: SimulationJob, seeds: Sequence[int], *, traces: Collection[int] = (), **options: Any
    ) -> list[Simulated]:
        self.jobs.append(job)
        self.traced.append(tuple(traces))
        found = []
        for seed in seeds:
            run = self._run(job, seed)
            found.append(Simulated(seed, self.factor * makespan_seconds(run), {}, run if seed in traces else None))
            options.get("report", int)(len(found))
        return found

    def _run(self, job: SimulationJob, seed: int) -> RunTrace:
        workers = job.cluster.workers
        gone = {"bytes_per_second": 1e15, "latency": 0} if "transfer" in job.without else {}
        if "scheduler" in job.without:
            gone |= {"scheduler_message": 0, "scheduler_task": 0, "handoff": 0, "loop": 0}
        size = {"workers": len(workers), "nthreads": workers[0].nthreads}
        run = simulated_traces.simulate(simulated_traces.tree_graph(LEAVES), seed=seed, **size, **gone, **self.settings)
        return replace(run, workers=workers)
