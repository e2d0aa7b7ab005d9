"""MpiPlacements: one program under several placements, ranked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from dask_efficiency.mpi.result import MpiPrediction
from dask_efficiency.show.shown import Shown


@dataclass(frozen=True, slots=True, repr=False)
class MpiPlacements(Shown):
    """A program on several choices of hosts, the fastest first.

    Parameters
    ----------
    ranked
        By makespan; at least one.
    """

    _said_by: ClassVar[str] = "dask_efficiency.mpi.sections.places"

    ranked: tuple[MpiPrediction, ...]

    @property
    def best(self) -> MpiPrediction:
        """The fastest."""
        return self.ranked[0]

    @property
    def saved_seconds(self) -> float:
        """By how much the best is faster than the next; 0.0 where there is only one."""
        return self.ranked[1].makespan_seconds - self.best.makespan_seconds if len(self.ranked) > 1 else 0.0


def compared(runs: Iterable[MpiPrediction]) -> MpiPlacements:
    """The runs, the fastest first."""
    return MpiPlacements(tuple(sorted(runs, key=lambda run: run.makespan_seconds)))
