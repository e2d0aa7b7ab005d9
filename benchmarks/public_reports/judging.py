"""Judgement of a program's first screen by what was expected of it, and of all programs by what is claimed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from benchmarks.public_reports.programs import Expected
from dask_efficiency.show.finding import Basis, Finding

#: Least shares of the programs whose first finding, and whose first three, have the cause and its place.
FIRST, FIRST_THREE = 17 / 20, 19 / 20
#: Least share of the savings with an interval that hold.
SAVINGS = 0.9

#: The user's own source in a place, and names of files: they say no cause.
QUOTED = re.compile(r"`[^`]*[^`\w.<>][^`]*` in \S+\.py:\d+|[\w<>.-]+\.py\b(:\d+)?")


@dataclass(frozen=True, slots=True)
class Told:
    """A finding on the first screen, and what of it is right."""

    kind: str
    title: str
    where: str
    advice: str
    saving: str
    saves_interval: list[float] | None
    cause: bool
    place: bool
    cure: bool

    @property
    def right(self) -> bool:
        """True if it has the cause and its place."""
        return self.cause and self.place


@dataclass(frozen=True, slots=True)
class Judged:
    """A program's first screen, what is right of it, and what its cure saved by a stopwatch."""

    name: str
    bad_seconds: float
    good_seconds: float
    headline: str
    #: Share of the cores that programs other than the cluster's had; None if unknown.
    others_share: float | None = None
    told: list[Told] = field(default_factory=list)
    #: Sentences that mislead, with the reasons.
    misleading: list[str] = field(default_factory=list)
    #: True if a finding on the first screen of the mended program still says the cause.
    still: bool = False
    #: Of all runs of it.
    first_right: bool = False
    three_right: bool = False
    kept: list[bool] = field(default_factory=list)

    @property
    def first_cure(self) -> bool:
        """True if the advice of the first finding is the cure, and the finding is right."""
        return bool(self.told) and self.told[0].right and self.told[0].cure


def judged(
    name: str,
    expected: Expected,
    headline: str,
    shown: Sequence[Finding],
    bad_seconds: float,
    good_seconds: float,
    *,
    shown_good: Sequence[Finding] = (),
    others_share: float | None = None,
) -> Judged:
    """Judge the findings on a program's first screen.

    Parameters
    ----------
    name, expected
        Of the program.
    headline, shown
        What a user reads first of the program with its fault.
    bad_seconds, good_seconds
        Stopwatch of the program with its fault, and with its cure.
    shown_good
        Findings on the first screen of the program with its cure.
    others_share
        Share of the cores that other programs had meanwhile.
    """
    told = [_told(expected, one) for one in shown]
    right = next((one for one in told if one.right), None)
    kept = []
    if right is not None and right.saves_interval is not None:
        low, high = right.saves_interval
        kept = [low <= bad_seconds - good_seconds <= high]
    screen = "\n".join((headline, *map(str, shown)))
    return Judged(
        name,
        bad_seconds,
        good_seconds,
        headline,
        others_share,
        told,
        misleading=[
            f"{found[0]!r}: {why}" for pattern, why in expected.never.items() if (found := re.search(pattern, screen))
        ],
        still=any(_told(expected, one).cause for one in shown_good),
        first_right=bool(told) and told[0].right,
        three_right=right is not None,
        kept=kept,
    )


def _told(expected: Expected, one: Finding) -> Told:
    text = "\n".join((one.title, QUOTED.sub("", one.where), one.advice))
    return Told(
        kind=one.kind,
        title=one.title,
        where=one.where,
        advice=one.advice,
        saving=one.saving,
        saves_interval=list(one.saves_interval) if one.basis is Basis.REPLAYED and one.saves_interval else None,
        cause=re.search(expected.says, text, re.IGNORECASE) is not None,
        place=any(re.search(place, one.where) for place in expected.places),
        cure=re.search(expected.cures, one.advice, re.IGNORECASE) is not None,
    )


def together(runs: Sequence[Judged]) -> Judged:
    """Run of median time, as right as the worst of them, with median times."""
    middle = sorted(runs, key=lambda one: one.bad_seconds)[(len(runs) - 1) // 2]
    return replace(
        middle,
        bad_seconds=median(one.bad_seconds for one in runs),
        good_seconds=median(one.good_seconds for one in runs),
        misleading=list(dict.fromkeys(sentence for one in runs for sentence in one.misleading)),
        still=any(one.still for one in runs),
        first_right=all(one.first_right for one in runs),
        three_right=all(one.three_right for one in runs),
        kept=[kept for one in runs for kept in one.kept],
    )


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim on all programs that were judged."""

    words: str
    #: None where there is nothing to judge it by.
    holds: bool | None

    def __str__(self) -> str:
        return f"{ {True: 'holds', False: 'FAILS', None: 'open'}[self.holds]:6} {self.words}"


def claims(results: Sequence[Judged]) -> Iterator[Claim]:
    """Claims, the last two of which claim nothing."""
    kept = [one for result in results for one in result.kept]
    misleading = sum(bool(one.misleading) for one in results)
    yield _least("cause and place are right in the first finding", [one.first_right for one in results], FIRST)
    yield _least("they are within the first three", [one.three_right for one in results], FIRST_THREE)
    yield Claim(f"a sentence misleads in {misleading} of {len(results)}", misleading == 0 if results else None)
    yield _least("savings are in their interval", kept, SAVINGS)
    yield _least("the first finding's advice is the cure", [one.first_cure for one in results], None)
    yield _least("the cause is still named with the cure", [one.still for one in results], None)


def _least(words: str, flags: Sequence[bool], least: float | None) -> Claim:
    text = f"{words} in {sum(flags)} of {len(flags)}"
    if least is None:
        return Claim(text, None)
    needed = math.ceil(least * len(flags) - 1e-9)
    return Claim(f"{text} (at least {needed})", sum(flags) >= needed if flags else None)
