"""Changes: what a replay does differently from the recorded run."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.runs.trace.run_trace import RunTrace

#: What can be left out: moving results between workers; writing results to disk and reading them back; the messages to
#: and from the scheduler, and the scheduler's own time.
REMOVABLE = ("transfer", "spill", "scheduler")


@dataclass(frozen=True, slots=True)
class Changes:
    """Factors by which a replay multiplies recorded durations; 1.0 leaves them as they were.

    Parameters
    ----------
    prefixes
        By prefix: the factor of its tasks' computing time.
    parts
        By name, one of :data:`REMOVABLE`: the factor of the time that this part takes.
    repaired
        Names of workers that compute as fast as the others.
    seed
        Seeds small random changes to all computing times; None leaves them as they are.
    """

    prefixes: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    repaired: frozenset[str] = frozenset()
    seed: int | None = None

    def part(self, name: str) -> float:
        """The factor of one of :data:`REMOVABLE`."""
        return self.parts.get(name, 1.0)


def changes(trace: RunTrace, speed_up: Mapping[str, float], without: Collection[str], repair: Iterable[str]) -> Changes:
    """Check and translate the changes that a user asks for.

    Raises
    ------
    UnknownNameError
        If a prefix or worker is not in the trace, or a part is none of :data:`REMOVABLE`.
    ValueError
        If a speed-up is not a positive number.
    """
    without = (without,) if isinstance(without, str) else without
    repair = (repair,) if isinstance(repair, str) else repair
    factors = {}
    for prefix, speed in speed_up.items():
        if prefix not in trace.prefixes:
            raise UnknownNameError("prefix", prefix, trace.prefixes)
        if not (isinstance(speed, int | float) and speed > 0 and not math.isnan(speed)):
            raise ValueError(
                f"speed_up[{prefix!r}] is {speed!r}; expected a number above 0, such as 2.0 for half the time"
            )
        factors[prefix] = 1.0 / speed
    for name in without:
        if name not in REMOVABLE:
            raise UnknownNameError("part to leave out", name, REMOVABLE)
    repaired, names = frozenset(repair), [worker.name for worker in trace.workers]
    for name in repaired:
        if name not in names:
            raise UnknownNameError("worker", name, names)
    return Changes(factors, dict.fromkeys(without, 0.0), repaired)
