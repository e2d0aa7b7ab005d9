"""Accuracy: the error of simulating a run on its own cluster, by which predictions are trusted or refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Ensemble, SimulationJob, Simulator, ensemble
from dask_efficiency.simulation.model.run_figures import RunFigures
from dask_efficiency.simulation.model.transfer_costs import has_hosts

#: Share of the recorded makespan by which the run's own simulation may be off before a warning: published simulators of
#: runtimes reproduce their own runs within 0.5 to 5 %.
MAX_TRUSTED_ERROR = 0.05

#: Share above which nothing is predicted without ``force``: three times that.
MAX_ERROR = 0.15

#: Seeds of a self replay: enough for a median that tells an error of 5 % from one of 15 %.
SEEDS = 5


class SimulationWarning(UserWarning):
    """A prediction is to be doubted: the run's own simulation is off by more than 5 %."""


class SimulationRefusedError(ValueError):
    """The trace is not good enough to predict from it; ``force=True`` predicts anyway."""


@dataclass(frozen=True, slots=True)
class SelfReplay:
    """Recorded run, and its simulations on its own cluster, without changes."""

    recorded: RunFigures
    runs: Ensemble

    @property
    def error(self) -> float:
        """Median simulated makespan over the recorded one, minus 1: above 0 the simulation takes longer."""
        return self.runs.median / self.recorded.makespan_seconds - 1.0

    @property
    def doubt(self) -> str:
        """Warning for a reader of a prediction; empty if there is no doubt."""
        if abs(self.error) <= MAX_TRUSTED_ERROR:
            return ""
        words = self.in_words
        return f"simulated on its own cluster, the run takes {words}: predictions may be off by as much, or more"

    @property
    def in_words(self) -> str:
        """The error in words."""
        than = "longer" if self.error > 0 else "less"
        return f"{100 * abs(self.error):.1f} % {than} than it did"

    def require(self, *, force: bool) -> None:
        """Refuse to predict from a run whose own simulation is far off."""
        if abs(self.error) > MAX_ERROR and not force:
            raise SimulationRefusedError(
                f"{self.doubt}; expected at most {100 * MAX_ERROR:.0f} %: force=True, or --force, predicts anyway"
            )


def own_job(trace: RunTrace, other: SimulationJob | None = None) -> SimulationJob:
    """Make the job of the run as it was.

    What another job, which this one judges, knows of the recorded hosts (their cores, the network between them) and of
    Python's lock is true of the recorded run, too.
    """
    own = ClusterSpec.from_trace(trace)
    if other is None:
        return SimulationJob(own)
    known = other.cluster
    if has_hosts(known.network, own.workers):
        own = replace(own, network=known.network, scheduler_host=known.scheduler_host)
    hosts = {own.scheduler_host, *(worker.host for worker in own.workers)}
    cores = {host: count for host, count in known.cores.items() if host in hosts}
    # The recorded cores of a host win over those of the other job.
    return SimulationJob(own.with_cores({**cores, **own.cores}), gil=other.gil)


def self_replay(engine: Simulator, trace: RunTrace, other: SimulationJob | None = None) -> SelfReplay:
    """Simulate a run on the cluster that it was recorded on, with what another job knows of it."""
    recorded = RunFigures.of(trace)
    return SelfReplay(recorded, ensemble(engine, trace, own_job(trace, other), range(SEEDS), traced=False))
