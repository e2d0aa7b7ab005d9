"""Finding: one thing that costs time: what, where, what fixing it saves, and how."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from dask_efficiency.show.figures import format_seconds, upper_first

#: Characters of a title and of a headline, so that these fit a line.
MAX_TITLE, MAX_HEADLINE = 70, 100
#: Least share of the wall clock of a finding; most findings; and those on the first screen. Guesses about patience.
WORTH_FINDING, MAX_FINDINGS, MAX_SHOWN = 0.03, 10, 3
#: Share from which something explains a loss, or stands for it: more than half.
MOST = 0.5
#: Evidence key: seconds of the wall clock that a finding is known to cost, its thread time over the threads.
KNOWN = "wall_clock_seconds"


class Basis(StrEnum):
    """Basis of the saving."""

    #: The recorded run was replayed with the fix.
    REPLAYED = "replayed"
    #: Upper bound from the accounts: the fix may save less.
    BOUNDED = "bounded"
    #: The saving is unknown.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that costs time.

    Parameters
    ----------
    kind
        Its kind: a bucket and a cause (``"thread-noncpu/sleep"``), what stands still (``"stalled/task"``), or another,
        such as ``"slow-worker"``, ``"long-task"``, ``"repeats"``, ``"client"``, ``"no-workers"``, ``"leak"``,
        ``"over-limit"`` or ``"spare-memory"``.
    title
        The kind in words, at most :data:`MAX_TITLE` characters.
    where
        The line and function, or else the prefix, worker or key; empty if unknown.
    lost_seconds
        Thread-seconds lost; 0.0 if no thread of the cluster lost any.
    saves_seconds
        Wall-clock seconds that the fix saves; None if unknown.
    saves_interval
        Interval of these seconds that holds nine times in ten; only if replayed.
    basis
        Basis of ``saves_seconds``.
    advice
        A sentence on what to do; empty if nothing is known to help.
    page
        Page of the documentation; may be empty.
    evidence
        Figures behind it, by name.
    confidence
        Probability that such a finding is right, in [0, 1]; None if unknown.

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
        """The saving in words: ``"saves 7.6 s"``, ``"saves up to 7.6 s"``, or the time lost."""
        if self.saves_seconds is not None:
            up_to = "up to " if self.basis is Basis.BOUNDED else ""
            return f"saves {up_to}{format_seconds(self.saves_seconds)}"
        return f"{format_seconds(self.lost_seconds)} of thread time" if self.lost_seconds else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The finding in at most two lines: title, saving and place; and the advice."""
        first = f"{self.title}: {self.saving}" if self.saving else self.title
        return tuple(line for line in (f"{first}. {upper_first(self.where)}".strip(), self.advice) if line)

    @property
    def in_a_line(self) -> str:
        """The finding in one line."""
        return ". ".join(line.removesuffix(".") for line in self.lines) + "."

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def to_dict(self) -> dict[str, Any]:
        """The finding as values that JSON has."""
        plain = {
            "saves_interval": None if self.saves_interval is None else list(self.saves_interval),
            "basis": str(self.basis),
            "evidence": dict(self.evidence),
        }
        return {each.name: getattr(self, each.name) for each in fields(self)} | plain


def numbered(findings: Iterable[Finding]) -> tuple[tuple[str, ...], ...]:
    """Lines of findings that are shown with numbers from 1; those with the advice of one above refer to its number."""
    above: dict[str, int] = {}
    found = []
    for number, one in enumerate(findings, 1):
        first = above.setdefault(one.advice, number) if one.advice else number
        found.append(one.lines if first == number else (one.lines[0], f"See {first}: the same helps here."))
    return tuple(found)
