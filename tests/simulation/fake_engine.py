"""An engine without Dask: the traces of a small scheduler in virtual time, so that all columns are consistent."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from dask_efficiency import RunTrace
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob, SimulationJob, Wanted
from dask_efficiency.simulation.model.run_figures import makespan_seconds
from tests import simulated_traces

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

    def __call__(self, trace: RunTrace, jobs: Sequence[SeededJob], **options: Any) -> Generator[Ensemble, None, None]:
        done = 0
        for seeded in jobs:
            self.jobs.append(seeded.job)
            runs = {}
            for seed in seeded.seeds:
                runs[seed] = self._run(seeded.job, seed)
                done += 1
                options.get("report", int)(done)
            ensemble = Ensemble({seed: self.factor * makespan_seconds(run) for seed, run in runs.items()})
            yield replace(ensemble, trace=runs[ensemble.nearest] if seeded.wanted is Wanted.TRACE else None)

    def _run(self, job: SimulationJob, seed: int) -> RunTrace:
        workers = job.cluster.workers
        gone = {"bytes_per_second": 1e15, "latency": 0} if "transfer" in job.without else {}
        if "scheduler" in job.without:
            gone |= {"scheduler_message": 0, "scheduler_task": 0, "handoff": 0, "loop": 0}
        size = {"workers": len(workers), "nthreads": workers[0].nthreads}
        run = simulated_traces.simulate(simulated_traces.tree_graph(LEAVES), seed=seed, **size, **gone, **self.settings)
        return replace(run, workers=workers)
