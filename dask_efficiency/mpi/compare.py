"""MpiRunsCompared: one program under several placements, ranked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dask_efficiency.mpi.result import MpiRun


@dataclass(frozen=True, slots=True)
class MpiRunsCompared:
    """A program on several choices of hosts, the fastest first.

    Parameters
    ----------
    ranked
        By makespan; at least one.
    """

    ranked: tuple[MpiRun, ...]

    @property
    def best(self) -> MpiRun:
        """The fastest."""
        return self.ranked[0]

    @property
    def saved_seconds(self) -> float:
        """By how much the best is faster than the next; 0.0 where there is only one."""
        return self.ranked[1].makespan_seconds - self.best.makespan_seconds if len(self.ranked) > 1 else 0.0


def compared(runs: Iterable[MpiRun]) -> MpiRunsCompared:
    """The runs, the fastest first."""
    return MpiRunsCompared(tuple(sorted(runs, key=lambda run: run.makespan_seconds)))
