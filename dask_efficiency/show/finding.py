"""Finding: one thing that costs time: what, where, what fixing it saves, and how."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dask_efficiency.show.figures import format_seconds

#: Characters of a title, and of a headline.
MAX_TITLE, MAX_HEADLINE = 70, 100

#: Nothing below this share of the wall clock is a finding; and there are so many at most, so many of them shown first.
WORTH_FINDING, MAX_FINDINGS, MAX_SHOWN = 0.03, 10, 3


class Basis(StrEnum):
    """How it is known what fixing saves."""

    #: The recorded run was replayed with the fix.
    REPLAYED = "replayed"
    #: From the accounts: no fix of the same work saves more, and this one may save less.
    BOUNDED = "bounded"
    #: It is not known.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that costs time.

    Parameters
    ----------
    kind
        What it is, as a bucket and a cause (``"thread-noncpu/sleep"``), or ``"slow-worker"``, ``"long-task"``,
        ``"repeats"``, ``"client"`` or ``"no-workers"``.
    title
        The same in words, at most :data:`MAX_TITLE` characters.
    where
        The line and function, or else the prefix, worker or key; empty where that is not known.
    lost_seconds
        Thread-seconds that were lost; 0.0 where no thread of the cluster lost any.
    saves_seconds
        By how much the run is shorter on the wall clock once it is fixed; None where that is not known.
    saves_interval
        Seconds from which to which that lies, nine times in ten; only where it was replayed.
    basis
        How that is known.
    advice
        What to do, a sentence; empty where nothing is known to help.
    page
        Where the documentation says more; may be empty.
    evidence
        Figures behind it, by name.
    confidence
        How often such a finding is right, in [0, 1]; None where that is not known.

    Raises
    ------
    ValueError
        If a title is too long, or a figure is not in its range.
    """

    kind: str
    title: str
    where: str = ""
    lost_seconds: float = 0.0
    saves_seconds: float | None = None
    saves_interval: tuple[float, float] | None = None
    basis: Basis = Basis.UNKNOWN
    advice: str = ""
    page: str = ""
    evidence: Mapping[str, float] = field(default_factory=dict)
    confidence: float | None = None

    def __post_init__(self) -> None:
        if not 0 < len(self.title) <= MAX_TITLE:
            raise ValueError(f"title is {self.title[:90]!r}; expected 1 to {MAX_TITLE} characters")
        for name in ("lost_seconds", "saves_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 <= seconds < math.inf:
                raise ValueError(f"{name} of {self.kind!r:.80} is {seconds!r}; expected seconds, at least 0")
        if (self.saves_seconds is None) is not (self.basis is Basis.UNKNOWN):
            given = f"{self.saves_seconds!r}, {self.basis}"
            raise ValueError(f"saves_seconds of {self.kind!r:.80} is {given}; expected both or none to be known")
        if self.saves_interval is not None:
            low, high = self.saves_interval
            if self.basis is not Basis.REPLAYED or not 0 <= low <= (self.saves_seconds or 0.0) <= high < math.inf:
                given = f"{self.saves_interval!r} around {self.saves_seconds!r}, {self.basis}"
                raise ValueError(
                    f"saves_interval of {self.kind!r:.80} is {given}; expected it around what a replay saves"
                )
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise ValueError(f"confidence of {self.kind!r:.80} is {self.confidence!r}; expected 0 to 1")

    @property
    def saving(self) -> str:
        """What fixing it saves, in words: ``"saves 7.6 s"``, ``"saves up to 7.6 s"``, or what is lost."""
        if self.saves_seconds is not None:
            up_to = "up to " if self.basis is Basis.BOUNDED else ""
            return f"saves {up_to}{format_seconds(self.saves_seconds)}"
        return f"{format_seconds(self.lost_seconds)} of thread time" if self.lost_seconds else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The same in at most two lines: what it is, saves and where; and what to do."""
        first = f"{self.title}: {self.saving}" if self.saving else self.title
        where = f"{self.where[:1].upper()}{self.where[1:]}"
        return tuple(line for line in (f"{first}. {where}".strip(), self.advice) if line)

    @property
    def in_a_line(self) -> str:
        """The same in one line."""
        return ". ".join(line.removesuffix(".") for line in self.lines) + "."

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def to_dict(self) -> dict[str, Any]:
        """The finding as values that JSON has."""
        return {
            "kind": self.kind,
            "title": self.title,
            "where": self.where,
            "lost_seconds": self.lost_seconds,
            "saves_seconds": self.saves_seconds,
            "saves_interval": None if self.saves_interval is None else list(self.saves_interval),
            "basis": str(self.basis),
            "advice": self.advice,
            "page": self.page,
            "evidence": dict(self.evidence),
            "confidence": self.confidence,
        }
