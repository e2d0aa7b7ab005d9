"""PathSummary: main figures of a critical path, small enough to be kept with a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PathSummary:
    """Main figures of the critical path of a recorded run."""

    #: One sentence, without a full stop.
    headline: str
    #: Seconds from the client's first activity to the last result.
    makespan_seconds: float
    #: Seconds of the makespan by :class:`~dask_efficiency.runs.path.kinds.Kind`, largest first.
    seconds_by_kind: Mapping[str, float]
    #: Seconds of the longest path of pure computing through the graph.
    floor_seconds: float
    #: Seconds of the longest task on that path.
    longest_task_seconds: float
    #: Useful seconds on the longest chain of tasks that need one another.
    chain_seconds: float
    #: Whether tasks could be smaller: not where each worker has one, or where they compute in threads of their own.
    divisible: bool = True
