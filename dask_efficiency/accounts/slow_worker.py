"""SlowWorker: a worker that takes longer than its peers for the same work, with the cause and the cost."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from dask_efficiency.accounts.checks import MAX_FLOAT, short, whole
from dask_efficiency.accounts.intake import finite


class Cause(StrEnum):
    """Cause of a worker's slowness, as its signals show it."""

    #: It computes all the time and takes longer: a lower clock, stolen CPU time, another model of the CPU.
    SLOW_CPU = "slow-cpu"
    #: Its threads wait for a core that others use.
    CONTENTION = "contention"
    GIL = "gil"
    #: Its process stands still at times, or its machine does.
    STOPPED = "stopped"
    SLEEP = "sleep"
    LOCK = "lock"
    DISK = "disk"
    NETWORK = "network"
    MEMORY = "memory"
    #: Its memory moves fewer bytes a second: others on its host move theirs.
    MEMORY_BANDWIDTH = "memory-bandwidth"
    GPU = "gpu"
    UNRESPONSIVE = "unresponsive"
    #: It takes longer, and nothing that was measured explains it.
    UNKNOWN = "unknown"


#: Share of barely flagged findings that are wrong, where workers are compared by their tasks. Measured on FlowBench;
#: of the live detector's, in simulated and real runs of which half had a straggler, no more were wrong.
WRONG_BY_TASKS = 0.3
#: The same where workers are compared by metrics. Rough: with the thresholds of ``benchmarks.studies.rivals``, half
#: of the findings with a score just over 1 were right, 9 in 10 up to 2.5, and 99 % beyond.
WRONG_BY_METRICS = 0.5


def confidence_of(score: float, *, wrong: float = WRONG_BY_TASKS) -> float:
    """Probability that a finding is right whose score is a multiple of what flags a worker.

    By tasks it is 0.7 for a finding that is barely flagged (``wrong`` is the share of those that are wrong), 0.9 at
    twice as much, and nearly 1 at 5 times.
    """
    return 1.0 - wrong * math.pow(max(score, 1.0), -1.5)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One signal of a worker compared with its peers."""

    #: Such as ``duration``, in multiples of what is usual for the same work, or ``cpu_share``.
    signal: str
    #: The worker's value; and of its peers' values the median, the lowest and the highest.
    value: float
    peers: float
    low: float
    high: float
    #: Distance from its peers in units of their spread; positive is worse.
    z: float
    #: Number of the worker's tasks, or other observations, behind it.
    tasks: int


@dataclass(frozen=True, slots=True)
class SlowWorker:
    """A straggler.

    Parameters
    ----------
    worker
        Its name; empty if a whole host is slow.
    host
        Its host; empty if unknown.
    cause
        Cause of its slowness.
    score
        Distance from its peers in the strongest signal, as a multiple of what flags a worker.
    confidence
        Probability that the finding is right, 0 to 1; see :func:`confidence_of`.
    since
        Its beginning, in seconds since the epoch (for a table: in the table's own time); NaN if unknown.
    effect
        Ratio of its time to its peers' for the same work, or for a transfer or a byte to disk if that is the cause; 1.3
        is 30 % longer. None if unknown.
    seconds_lost
        Reduction of the run's time with this worker at its peers' level; None if unknown.
    evidence
        The signals that stand out, the strongest first.
    workers
        Names of the workers on a host whose metrics stand out.
    line
        Line at which its tasks sleep or wait for locks, ``"etl.py:88"``; empty if unknown, or not the cause.

    Raises
    ------
    ValueError
        If score, confidence or effect is not in its range.
    """

    worker: str
    host: str
    cause: Cause
    score: float
    confidence: float
    since: float
    effect: float | None
    seconds_lost: float | None = None
    evidence: tuple[Evidence, ...] = ()
    workers: tuple[str, ...] = ()
    line: str = ""

    def __post_init__(self) -> None:
        for name, low, high in (("score", 0, math.inf), ("confidence", 0, 1), ("effect", 0, sys.float_info.max)):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} of {self.worker[:80]!r} is {value!r}; expected {low} to {high}")

    @property
    def subject(self) -> str:
        """Name of the worker or machine, or else of the host."""
        return self.worker or self.host

    def to_dict(self) -> dict[str, Any]:
        """The finding as values that JSON has; what is not finite is None."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> SlowWorker:
        """The inverse of :meth:`to_dict`; raises ValueError if something is missing or out of its range."""
        try:
            effect, lost = content["effect"], content["seconds_lost"]
            return cls(
                worker=_text(content["worker"]),
                host=_text(content["host"]),
                cause=Cause(content["cause"]),
                score=_number(content["score"], math.inf),
                confidence=_number(content["confidence"]),
                since=_number(content["since"]),
                effect=None if effect is None else _number(effect),
                seconds_lost=None if lost is None else _number(lost),
                evidence=tuple(map(_evidence, content["evidence"])),
                workers=tuple(map(_text, content.get("workers", ()))),
                line=_text(content.get("line", "")),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a finding: {str(error)[:200]}") from error


def _evidence(item: Mapping[str, Any]) -> Evidence:
    numbers = {name: _number(item[name]) for name in ("value", "peers", "low", "high", "z")}
    return Evidence(signal=_text(item["signal"]), tasks=whole("tasks", item["tasks"]), **numbers)


def _number(value: Any, missing: float = math.nan) -> float:
    if value is None:
        return missing
    if type(value) not in (int, float) or not -MAX_FLOAT <= value <= MAX_FLOAT:
        raise ValueError(f"{short(value)} is in a finding; expected a number from {-MAX_FLOAT:g} to {MAX_FLOAT:g}")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{short(value)} is in a finding; expected a string")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return str(value) if isinstance(value, StrEnum) else value
