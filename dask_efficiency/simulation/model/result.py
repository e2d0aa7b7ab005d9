"""Prediction: makespan of a run on a cluster, and its error, by which it is trusted or refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from dask_efficiency.runs.path.path import CriticalPath, critical_path
from dask_efficiency.runs.path.scope import Question
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.figures import lower_first
from dask_efficiency.show.shown import Shown
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob, SimulationJob, Wanted
from dask_efficiency.simulation.model.requirements import SIMULATED, SimulationRefusedError
from dask_efficiency.simulation.model.run_figures import RunFigures, computing_share, run_noise, thread_shares
from dask_efficiency.simulation.model.thread_waits import note_on_others, shares_of_others
from dask_efficiency.simulation.model.transfer_costs import has_hosts

if TYPE_CHECKING:
    from dask_efficiency.show.document import Section

#: Share of the recorded makespan by which the run's own simulation may be off before a warning: published simulators of
#: runtimes reproduce their own runs within 0.5 to 5 %.
MAX_TRUSTED_ERROR = 0.05
#: Share above which nothing is predicted without ``force``: three times that.
MAX_ERROR = 0.15
#: Seeds of a self replay: enough for a median that tells an error of 5 % from one of 15 %.
SEEDS = 5


class SimulationWarning(UserWarning):
    """A prediction is to be doubted: the run's own simulation is off by more than 5 %."""


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
        return f"{lower_first(self.outcome)}: predictions may be off by as much, or more"

    @property
    def outcome(self) -> str:
        """The error as a sentence, without a full stop."""
        than = "longer" if self.error > 0 else "less"
        return f"Simulated on its own cluster, the run takes {100 * abs(self.error):.1f} % {than} than it did"

    def require(self, *, force: bool) -> None:
        """Refuse to predict from a run whose own simulation is far off."""
        if abs(self.error) > MAX_ERROR and not force:
            raise SimulationRefusedError(
                f"{self.doubt}; expected at most {100 * MAX_ERROR:.0f} %: force=True, or --force, predicts anyway"
            )


def own_job(trace: RunTrace, other: SimulationJob | None = None) -> SimulationJob:
    """Make the job of the run as it was, others on its cores included.

    Another job may know more of the recorded hosts and of Python's lock.
    """
    own, others = ClusterSpec.from_trace(trace), bool(shares_of_others(trace))
    if other is None:
        return SimulationJob(own, others=others)
    known = other.cluster
    if has_hosts(known.network, own.workers):
        own = replace(own, network=known.network, scheduler_host=known.scheduler_host)
    hosts = {own.scheduler_host, *(worker.host for worker in own.workers)}
    cores = {host: count for host, count in known.cores.items() if host in hosts}
    # The recorded cores of a host win over those of the other job.
    return SimulationJob(own.with_cores({**cores, **own.cores}), gil=other.gil, others=others)


def self_replay_job(trace: RunTrace, other: SimulationJob) -> SeededJob:
    """Make the job of a self replay: the run on its own cluster, with what another job knows of it."""
    return SeededJob(own_job(trace, other), range(SEEDS), Wanted.NOTHING)


#: Smallest error of a prediction, as a share of it, however well the run's own simulation fits, which may be by chance.
#: Of 44 real changes of cluster and settings (``benchmarks/simulation.py``) the median error was 0.7 %; with this, the
#: intervals held 99 % of the real runs.
MIN_MODEL_ERROR = 0.02
#: The same for the share of the path that computes, as tasks share cores, caches and Python's lock in ways that the
#: model knows in part: the target of ``benchmarks/simulation.py``, where the median error of programs was 4 to 6 %.
COMPUTING_ERROR = 0.05
#: Error, as a share of a prediction, for each second of a core that others took while the run was recorded, over those
#: that they left: four runs of which they took 75 to 87 % were predicted 3 to 33 % too long, 1 to 6 % for each.
OTHERS_ERROR = 0.06


def model_error(self_replay_error: float, *figures: tuple[Mapping[str, float], float]) -> float:
    """Estimate the error of the model, as a share, from the paths' seconds by kind, and their sum, of both runs."""
    computing = max(computing_share(*of_run) for of_run in figures)
    return max(abs(self_replay_error), MIN_MODEL_ERROR, COMPUTING_ERROR * computing)


# It has no slots, because cached properties need a ``__dict__``.
@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """Prediction of a recorded run on another cluster, by simulation under several seeds.

    Parameters
    ----------
    job
        The cluster and the changes that were simulated.
    self_replay
        The recorded run, and its simulation on its own cluster, whose error is the measure of the prediction's.
    runs
        The simulated runs.
    trace
        The simulated run whose makespan is nearest to the median, as a trace like a recorded one.
    notes
        Caveats, a sentence each.
    others_share
        Largest share of a host's cores that other processes took while the run was recorded, in [0, 1]; the prediction
        is without them. 0 if they took less than a tenth.
    calls_alone
        With larger partitions: the makespan if a larger task took no longer than a small one, as a share of that at the
        same work, in (0, 1].
    """

    _sections_module: ClassVar[str] = "dask_efficiency.simulation.sections.prediction"

    job: SimulationJob
    self_replay: SelfReplay
    runs: Ensemble
    trace: RunTrace
    notes: tuple[str, ...] = ()
    others_share: float = 0.0
    calls_alone: float = 1.0

    @property
    def cluster(self) -> ClusterSpec:
        """Simulated cluster."""
        return self.job.cluster

    @property
    def recorded(self) -> RunFigures:
        """Main figures of the recorded run."""
        return self.self_replay.recorded

    @property
    def makespans(self) -> Mapping[int, float]:
        """Seconds of each simulated run, by seed."""
        return self.runs.makespans

    @property
    def makespan_seconds(self) -> float:
        """Median of the simulated makespans, measured as by :func:`~dask_efficiency.critical_path`.

        It is not corrected by the :attr:`self_replay_error`; divided by ``1 + self_replay_error`` it would be. With
        larger partitions it is the geometric mean of that at the same work and that with ``calls_alone``.
        """
        return self.runs.median * math.sqrt(self.calls_alone)

    @property
    def interval(self) -> tuple[float, float]:
        """Interval in seconds in which a real run is expected in 90 of 100 cases.

        It adds up three things. Simulated runs differ by their seeds: a prediction interval for one more run
        (Student's, of the logarithms). Real runs that compute differ by more, both the recorded and the next one:
        :func:`~dask_efficiency.simulation.model.run_figures.run_noise` of both. And the model has an
        error: both ends are moved outwards by :attr:`model_error`. With larger partitions, the lower end is that with
        ``calls_alone``. NaN for a single seed.
        """
        low, high = self.runs.spread_with(math.hypot(*(run_noise(*of_run) for of_run in self._figures)))
        return low * self.calls_alone / (1.0 + self.model_error), high * (1.0 + self.model_error)

    @property
    def model_error(self) -> float:
        """Error of the model, as a share of the prediction, apart from the spread of seeds.

        That of the run's own simulation (:attr:`self_replay_error`), without its sign; at least 2 %, and 5 % of the
        computing on the critical path, recorded or simulated. It is more if others took cores while the run was
        recorded: :data:`OTHERS_ERROR` for each second of a core that they took, over those that they left.
        """
        taken = self.others_share / (1.0 - self.others_share) if self.others_share < 1.0 else math.inf
        return max(model_error(self.self_replay_error, *self._figures), OTHERS_ERROR * taken)

    @property
    def _figures(self) -> tuple[tuple[Mapping[str, float], float], ...]:
        """Seconds of the critical path by kind, and their sum: of the recorded run, and of the simulated one."""
        recorded = self.recorded
        return (recorded.kinds, recorded.makespan_seconds), (self.breakdown, self.path.makespan_seconds)

    @property
    def self_replay_error(self) -> float:
        """Error of simulating the run on its own cluster, as a share; above 0 if the simulation is longer."""
        return self.self_replay.error

    @property
    def speedup(self) -> float:
        """Speed as a multiple of the recorded run's."""
        return self.recorded.makespan_seconds / self.makespan_seconds if self.makespan_seconds else math.inf

    @cached_property
    def efficiency(self) -> float:
        """Share of the thread time in which tasks compute on CPU or GPU, in [0, 1].

        Thread time is the sum over all workers of their threads times their presence, as of the recorded run.
        """
        return thread_shares(self.trace)[0]

    @cached_property
    def busy(self) -> float:
        """Share of the cluster's thread time in which tasks hold a thread, computing or waiting; in [0, 1]."""
        return thread_shares(self.trace)[1]

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path of :attr:`trace`."""
        return CriticalPath.of(self.trace, Question())

    @property
    def breakdown(self) -> dict[str, float]:
        """Seconds of the simulated run's critical path by kind, largest first."""
        return self.path.seconds("kind")

    @property
    def section(self) -> Section:
        """Section for a report's page."""
        section: Section = self._from_sections("in_report")
        return section

    def critical_path(self, **scope: Any) -> CriticalPath:
        """Find the critical path of the median simulated run, as :func:`~dask_efficiency.critical_path` does."""
        return critical_path(self.trace, **scope)

    @property
    def is_self_replay(self) -> bool:
        """True if nothing was changed."""
        return not self.job.without and not self.job.prefixes and self.runs.makespans == self.self_replay.runs.makespans


def predict(
    trace: RunTrace, job: SimulationJob, runs: Ensemble, self_replay: SelfReplay, notes: tuple[str, ...] = ()
) -> Prediction:
    """Make the prediction of a job's simulated runs."""
    simulated = runs.trace
    if simulated is None:
        raise RuntimeError(f"the engine gave no trace of seed {runs.nearest}")
    if SIMULATED not in simulated.notes:
        simulated = replace(simulated, notes=(*simulated.notes, SIMULATED))
    others = {} if job.others else shares_of_others(trace)
    taken = note_on_others(trace) if others else ()
    all_notes = dict.fromkeys((*taken, *notes, *(note for note in simulated.notes if note != SIMULATED)))
    return Prediction(job, self_replay, runs, simulated, tuple(all_notes), max(others.values(), default=0.0))
