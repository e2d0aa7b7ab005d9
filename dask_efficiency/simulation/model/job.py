"""Job: what is to be simulated, and Simulated: what became of it, as they travel to the engine's process and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.model.cluster import ClusterSpec


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be simulated: a trace that is in a file, on a cluster.

    Parameters
    ----------
    cluster
        Where.
    without
        Parts to leave out, of :data:`~dask_efficiency.runs.replay.changes.REMOVABLE`.
    prefixes
        By prefix: the factor of its tasks' computing time.
    validate
        Let Dask check its own state after every step; slow.
    """

    cluster: ClusterSpec
    without: frozenset[str] = frozenset()
    prefixes: Mapping[str, float] | None = None
    validate: bool = False
    #: By prefix: the share of its tasks' time alone in which they hold Python's lock (GIL), where that is known.
    gil: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "cluster": self.cluster.to_dict(),
            "without": sorted(self.without),
            "prefixes": dict(self.prefixes or {}),
            "validate": self.validate,
            "gil": dict(self.gil),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote."""
        return cls(
            ClusterSpec.from_dict(given["cluster"]),
            frozenset(given["without"]),
            given["prefixes"],
            given["validate"],
            given["gil"],
        )


@dataclass(frozen=True, slots=True)
class Simulated:
    """One simulated run.

    Parameters
    ----------
    seed
        Its seed.
    makespan_seconds
        Of its critical path, as :func:`~dask_efficiency.critical_path` finds it.
    kinds
        What the seconds of that were spent on, by kind of segment.
    trace
        What a recorder would have recorded of it; None where it was not asked for.
    """

    seed: int
    makespan_seconds: float
    kinds: Mapping[str, float]
    trace: RunTrace | None = None
