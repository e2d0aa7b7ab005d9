"""Accuracy: how far the simulation of a run on its own cluster is off, and what follows from that."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Ensemble, SimulationJob, Simulator, ensemble
from dask_efficiency.simulation.model.run_figures import RunFigures
from dask_efficiency.simulation.model.transfer_costs import knows

#: Share of the recorded makespan by which the run's own simulation may be off before a prediction is doubted. Published
#: simulators of runtimes reproduce their own runs within 0.5 to 5 %.
MAX_TRUSTED_ERROR = 0.05

#: Above this share, nothing is predicted unless it is insisted on.
MAX_ERROR = 0.15

#: Seeds of a self replay: of its median only this much is needed, that an error of 5 % is told from one of 15 %.
SEEDS = 5


class SimulationWarning(UserWarning):
    """A prediction is to be doubted: the run's own simulation is off by more than 5 %."""


class SimulationRefusedError(ValueError):
    """What was recorded does not suffice to predict from it; ``force=True`` does it all the same."""


@dataclass(frozen=True, slots=True)
class SelfReplay:
    """The simulation of a run on the cluster that it was recorded on, with nothing changed.

    Parameters
    ----------
    recorded
        The run itself.
    runs
        Its simulations.
    """

    recorded: RunFigures
    runs: Ensemble

    @property
    def error(self) -> float:
        """Median simulated makespan over the recorded one, minus 1: above 0 the simulation takes longer."""
        return self.runs.median / self.recorded.makespan_seconds - 1.0

    @property
    def doubt(self) -> str:
        """A sentence for a reader who is about to trust a prediction; empty where there is no doubt."""
        if abs(self.error) <= MAX_TRUSTED_ERROR:
            return ""
        return f"simulated on its own cluster, the run takes {self.said}: predictions may be off by as much, or more"

    @property
    def said(self) -> str:
        """The error in words."""
        than = "longer" if self.error > 0 else "less"
        return f"{100 * abs(self.error):.1f} % {than} than it did"

    def require(self, *, force: bool) -> None:
        """Refuse to predict from a run whose own simulation is far off.

        Raises
        ------
        SimulationRefusedError
            If the error is above 15 % and nobody insists.
        """
        if abs(self.error) > MAX_ERROR and not force:
            raise SimulationRefusedError(
                f"{self.doubt}; expected at most {100 * MAX_ERROR:.0f} %: force=True, or --force, predicts all the same"
            )


def own_job(trace: RunTrace, other: SimulationJob | None = None) -> SimulationJob:
    """The run as it was.

    Parameters
    ----------
    other
        A job that this is to be the measure of: what it knows of the recorded hosts (their cores, the network between
        them) and of Python's lock is true of the recorded run, too.
    """
    own = ClusterSpec.from_trace(trace)
    if other is None:
        return SimulationJob(own)
    known = other.cluster
    if knows(known.network, own.workers):
        own = replace(own, network=known.network, scheduler_host=known.scheduler_host)
    hosts = {own.scheduler_host, *(worker.host for worker in own.workers)}
    cores = {host: count for host, count in known.cores.items() if host in hosts}
    # What a run says of the hosts that it was recorded on is true, whatever they are to become.
    return SimulationJob(own.with_cores({**cores, **own.cores}), gil=other.gil)


def self_replay(
    engine: Simulator, trace: RunTrace, other: SimulationJob | None = None, seeds: int = SEEDS
) -> SelfReplay:
    """Simulate a run on the cluster that it was recorded on.

    Parameters
    ----------
    other
        As of :func:`own_job`.

    Raises
    ------
    EmptyTraceError
        If no task ended in the trace.
    """
    recorded = RunFigures.of(trace)
    return SelfReplay(recorded, ensemble(engine, trace, own_job(trace, other), range(seeds), traced=False))
