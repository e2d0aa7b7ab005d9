"""IdealLadder: a recorded run with one overhead removed after the other, down to its lower bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from dask_efficiency.runs.path.path import CriticalPath
from dask_efficiency.runs.path.scope import Question
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.finding import Finding
from dask_efficiency.show.shown import Shown
from dask_efficiency.simulation.model.ensemble import Ensemble, SimulationJob
from dask_efficiency.simulation.model.result import SelfReplay, own_job
from dask_efficiency.simulation.model.run_figures import RunFigures

if TYPE_CHECKING:
    import pandas as pd

#: Parts that are left out, one after the other, and the names of the steps.
STEPS = (("spill", "no spill"), ("transfer", "no transfers"), ("scheduler", "no scheduling"))

MEASURED = "measured"
SIMULATED = "simulated as it was"
FULL_SLOTS = "all slots full"
ANY_CLUSTER = "infinite workers"
NO_WAITING = "no waiting in tasks"


@dataclass(frozen=True, slots=True)
class Rung:
    """Step of the ladder: the overhead that is removed in addition to those before, and the makespan without it."""

    name: str
    seconds: float
    #: Median of the simulations, before it was bounded by the floor and the step above; None where none was made.
    simulated_seconds: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class IdealLadder(Shown):
    """Recorded run, and its makespan with one part after another removed.

    Parameters
    ----------
    self_replay
        The recorded run and its simulation with nothing changed.
    rungs
        From the recorded run down to the floor.
    notes
        Caveats, a sentence each.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.simulation.sections.ladder"

    self_replay: SelfReplay
    rungs: tuple[Rung, ...]
    notes: tuple[str, ...] = ()

    @property
    def recorded(self) -> RunFigures:
        """Main figures of the recorded run."""
        return self.self_replay.recorded

    @property
    def worth(self) -> dict[str, float]:
        """Seconds that each step saves, by its name.

        The first, from the measured run to its simulation, is no saving but the error of the simulation, below 0 if
        that is longer than the run. No other is below 0.
        """
        return {lower.name: upper.seconds - lower.seconds for upper, lower in pairwise(self.rungs)}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the savings of each step, the largest first: replayed if the step is simulated, else a bound."""
        findings: tuple[Finding, ...] = self._from_sections("findings")
        return findings

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the steps. Needs pandas.

        Returns
        -------
        DataFrame
            Columns ``step``, ``seconds``, ``saved_seconds`` (by this step; NaN for the first) and
            ``simulated_seconds`` (the median before it was bounded; NaN where nothing was simulated).
        """
        from dask_efficiency.show.columns import as_frame

        return as_frame(self._from_sections("columns"))


def ladder_jobs(trace: RunTrace) -> list[SimulationJob]:
    """Make the jobs of a ladder's steps: the run as it was, and without one part after another."""
    parts, own = [part for part, _ in STEPS], own_job(trace)
    return [replace(own, without=frozenset(parts[:gone])) for gone in range(len(parts) + 1)]


def ladder(
    trace: RunTrace, self_replay: SelfReplay, without: Iterable[Ensemble], notes: tuple[str, ...] = ()
) -> IdealLadder:
    """Make the ladder of a run from its simulations, as it was and without one part after another."""
    path, names = CriticalPath.of(trace, Question()), [name for _, name in STEPS]
    simulated = {SIMULATED: self_replay.runs, **dict(zip(names, without, strict=True))}
    rungs = Rung(MEASURED, self_replay.recorded.makespan_seconds), *_descending(simulated, path)
    return IdealLadder(self_replay, rungs, notes)


def _descending(simulated: dict[str, Ensemble], path: CriticalPath) -> Iterator[Rung]:
    """Yield the steps below the measured run: none above the one before it, none below its bound."""
    full = max(path.slot_bound_seconds, path.floor_seconds)
    upper = float("inf")
    for name, runs in simulated.items():
        upper = min(upper, max(runs.median, full))
        yield Rung(name, upper, runs.median)
    for name, bound in ((FULL_SLOTS, full), (ANY_CLUSTER, path.floor_seconds), (NO_WAITING, path.chain_seconds)):
        upper = min(upper, bound)
        yield Rung(name, upper)
