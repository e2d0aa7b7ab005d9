"""MpiPlacements: one program under several placements, ranked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from dask_efficiency.mpi.result import MpiPrediction
from dask_efficiency.show.shown import Shown
from dask_efficiency.simulation.model.listed import not_simulated


@dataclass(frozen=True, slots=True, repr=False)
class MpiPlacements(Shown):
    """A program on several choices of hosts, the fastest first.

    Parameters
    ----------
    ranked
        By makespan; at least one.
    not_simulated
        Names of the others, where Ctrl-C ended it early.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.mpi.sections.places"

    ranked: tuple[MpiPrediction, ...]
    not_simulated: tuple[str, ...] = ()

    @property
    def best(self) -> MpiPrediction:
        """The fastest."""
        return self.ranked[0]

    @property
    def saved_seconds(self) -> float:
        """By how much the best is faster than the next; 0.0 where there is only one."""
        return self.ranked[1].makespan_seconds - self.best.makespan_seconds if len(self.ranked) > 1 else 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know to trust them."""
        return (*not_simulated(self.not_simulated, "placements"), *self.best.notes)


def compared(runs: Iterable[MpiPrediction], not_simulated: tuple[str, ...] = ()) -> MpiPlacements:
    """The runs, the fastest first."""
    return MpiPlacements(tuple(sorted(runs, key=lambda run: run.makespan_seconds)), not_simulated)
