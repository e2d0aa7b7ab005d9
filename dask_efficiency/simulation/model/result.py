"""Prediction: what a run would take on a cluster, how sure that is, and what the time would go to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from dask_efficiency.runs.path.path import CriticalPath, critical_path
from dask_efficiency.runs.path.scope import Question
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.shown import Shown
from dask_efficiency.simulation.model.accuracy import SelfReplay, own_job
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Ensemble, SimulationJob, Simulator, ensemble
from dask_efficiency.simulation.model.requirements import SIMULATED
from dask_efficiency.simulation.model.run_figures import RunFigures, busy, computing_share, efficiency, run_noise

if TYPE_CHECKING:
    from dask_efficiency.show.document import Section

#: Share of a prediction that it may be off by however well the run's own simulation fits, as that of one run can fit by
#: chance. Of 44 real changes of cluster and settings (``benchmarks/simulation.py``) the median error was 0.7 %; with
#: this, the intervals held 99 % of the real runs.
MIN_MODEL_ERROR = 0.02

#: The same for tasks that compute, which share cores, caches and Python's lock in ways that the model knows in part:
#: the error that programs are meant to stay within (``benchmarks/simulation.py``). Their median error was 4 to 6 %.
COMPUTING_ERROR = 0.05


def model_error(self_replay_error: float, *figures: tuple[Mapping[str, float], float]) -> float:
    """By what share a prediction may be off, whatever its seeds say.

    Parameters
    ----------
    self_replay_error
        By what share the run's own simulation is off.
    *figures
        Of each run, recorded and simulated: seconds of its critical path by kind, and their sum.
    """
    computing = max(computing_share(*each) for each in figures)
    return max(abs(self_replay_error), MIN_MODEL_ERROR, COMPUTING_ERROR * computing)


# It has no slots, because cached properties need a ``__dict__``.
@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """What a recorded run would take on another cluster, by simulation under several seeds.

    Parameters
    ----------
    job
        What was simulated: on which cluster, without what.
    self_replay
        The recorded run, and its simulation on its own cluster, by which the prediction is judged.
    runs
        The simulated runs.
    trace
        The simulated run in the middle: that of the seed whose makespan is nearest to the median. All that reads a
        recorded trace reads it, too.
    notes
        What a reader must know to trust the prediction, a sentence each.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.simulation.sections.prediction"

    job: SimulationJob
    self_replay: SelfReplay
    runs: Ensemble
    trace: RunTrace
    notes: tuple[str, ...] = ()

    @property
    def cluster(self) -> ClusterSpec:
        """The cluster that was simulated."""
        return self.job.cluster

    @property
    def recorded(self) -> RunFigures:
        """The main figures of the recorded run."""
        return self.self_replay.recorded

    @property
    def makespans(self) -> Mapping[int, float]:
        """Seconds of each simulated run, by seed."""
        return self.runs.makespans

    @property
    def makespan_seconds(self) -> float:
        """Median of the simulated makespans.

        Recorded and simulated runs are measured alike: from a client's first activity to the last result, as
        :func:`~dask_efficiency.critical_path` does. The figure is what the simulation says, not corrected by the
        :attr:`self_replay_error`; divided by ``1 + self_replay_error`` it would be.
        """
        return self.runs.median

    @property
    def interval(self) -> tuple[float, float]:
        """Seconds between which a real run is expected in 90 of 100 cases.

        Three things are in it. Simulated runs differ, as seeds do: a prediction interval for one more run (Student's,
        of the logarithms). Real runs of tasks that compute differ by more, and so do the recorded and the next one:
        :func:`~dask_efficiency.simulation.model.run_figures.run_noise` of both. And the model is not the cluster: both
        ends are
        moved outwards by :attr:`model_error`. NaN of a single seed, which says nothing about how much runs differ.
        """
        low, high = self.runs.spread_with(math.hypot(*(run_noise(*each) for each in self._figures)))
        return low / (1.0 + self.model_error), high * (1.0 + self.model_error)

    @property
    def model_error(self) -> float:
        """By what share the prediction may be off, whatever its seeds say.

        The share by which the run's own simulation is off (:attr:`self_replay_error`), whatever its sign; at least 2 %,
        and 5 % of what the critical path computes, recorded or simulated.
        """
        return model_error(self.self_replay_error, *self._figures)

    @property
    def _figures(self) -> tuple[tuple[Mapping[str, float], float], ...]:
        """Seconds of the critical path by kind, and their sum: of the recorded run, and of the simulated one."""
        recorded = self.recorded
        return (recorded.kinds, recorded.makespan_seconds), (self.breakdown, self.path.makespan_seconds)

    @property
    def self_replay_error(self) -> float:
        """By what share the simulation of the run on its own cluster is longer than the run was; below 0, shorter."""
        return self.self_replay.error

    @property
    def speedup(self) -> float:
        """How many times as fast as the recorded run."""
        return self.recorded.makespan_seconds / self.makespan_seconds if self.makespan_seconds else math.inf

    @cached_property
    def efficiency(self) -> float:
        """Share of the thread time in which tasks compute on CPU or GPU, in [0, 1].

        Thread time is the sum over all workers of their threads times how long they are there: as of the recorded run.
        """
        return efficiency(self.trace)

    @cached_property
    def busy(self) -> float:
        """Share of the cluster's thread time in which tasks hold a thread, also where they wait there; in [0, 1]."""
        return busy(self.trace)

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
        """What a report's page says of it."""
        found: Section = self._from_sections("in_report")
        return found

    def critical_path(self, **scope: Any) -> CriticalPath:
        """What every second of the simulated run in the middle is spent on.

        Parameters
        ----------
        **scope
            ``target``, ``span`` or ``window``, as of :func:`~dask_efficiency.critical_path`.
        """
        return critical_path(self.trace, **scope)

    @property
    def is_self_replay(self) -> bool:
        """Whether nothing was changed."""
        return not self.job.without and not self.job.prefixes and self.runs.makespans == self.self_replay.runs.makespans


def predict(
    engine: Simulator,
    trace: RunTrace,
    job: SimulationJob,
    seeds: Sequence[int],
    self_replay: SelfReplay,
    notes: tuple[str, ...] = (),
) -> Prediction:
    """Simulate a job that has been checked."""
    return _of(job, self_replay, ensemble(engine, trace, job, seeds), notes)


def predict_own(
    engine: Simulator,
    trace: RunTrace,
    seeds: Sequence[int],
    notes: tuple[str, ...] = (),
    *,
    job: SimulationJob | None = None,
) -> Prediction:
    """Simulate a run on its own cluster, with nothing changed: the self replay is the prediction.

    Parameters
    ----------
    job
        That; None is what the trace tells of it.
    """
    job = job or own_job(trace)
    recorded = RunFigures.of(trace)
    runs = ensemble(engine, trace, job, seeds)
    return _of(job, SelfReplay(recorded, runs), runs, notes)


def _of(job: SimulationJob, self_replay: SelfReplay, runs: Ensemble, notes: tuple[str, ...]) -> Prediction:
    """A prediction whose trace says that it is a simulation, and which has the notes of the engine, too."""
    trace = runs.trace
    if trace is None:
        raise RuntimeError(f"the engine gave no trace of seed {runs.nearest}")
    if SIMULATED not in trace.notes:
        trace = replace(trace, notes=(*trace.notes, SIMULATED))
    said = dict.fromkeys((*notes, *(note for note in trace.notes if note != SIMULATED)))
    return Prediction(job, self_replay, runs, trace, tuple(said))
