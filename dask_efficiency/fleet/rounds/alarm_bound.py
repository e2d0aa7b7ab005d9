"""AlarmBound: a bound on the rate of alarms among machines that leave their own past often, as if they shared no job.

What a detector finds far from its past and its peers is at fault only where machines do the same work. Others change
load whenever they like, so that somebody is far away in most rounds. That shows: within hours, more machines are found
than one a month each explains. From then on a machine is named only if it is further away than any machine was before,
for a day at least. Of like rounds, the one of number n is the furthest so far with a chance of 1 in n: in the month
after the first day, that is some three alarms of the whole fleet.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from dask_efficiency.accounts.slow_worker import WRONG_BY_METRICS, SlowWorker
from dask_efficiency.fleet.outliers.outliers import CROWD
from dask_efficiency.fleet.rounds.rounds import END_ROUNDS, format_instant
from dask_efficiency.straggler.retirements import DAY_SECONDS

#: Least time over which alarms are counted; the most is a day. A guess.
HOUR_SECONDS = 3_600.0
#: Days in which a machine has one alarm, if these are as rare as faults, and of which the furthest machine is
#: remembered; and the chance below which there are too many alarms of a fleet within a day. A guess.
DAYS_AN_ALARM = 30
UNLIKELY = 1e-3
#: Most confidence in a machine that is further away than others were, where that is all that is known: as in one that
#: is barely flagged.
MOST_CONFIDENCE = 1 - WRONG_BY_METRICS


@dataclass(slots=True)
class AlarmBound:
    """Alarms of the last day, and how far away machines were found; rounds come in the order of time."""

    #: When the first round was; and when the machines turned out to leave their past often.
    began: float = math.inf
    since: float | None = None
    #: When a finding was last withheld.
    _withheld: float = -math.inf
    #: By machine, when it was last found anew, within a day.
    _alarms: dict[str, float] = field(default_factory=dict)
    #: Machines of each of the last rounds.
    _recent: deque[set[str]] = field(default_factory=lambda: deque(maxlen=END_ROUNDS))
    #: Day, and the furthest score of it.
    _furthest: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=DAYS_AN_ALARM))

    def admitted(
        self, found: Sequence[SlowWorker], ongoing: Collection[str], *, machines: int, at: float
    ) -> list[SlowWorker]:
        """Findings of a round that may be named; those of machines that were named before go on."""
        self.began = min(self.began, at)
        self._count({one.subject for one in found}, at)
        if self.since is None and self._too_many(machines, at):
            self.since = at
        elif self.since is not None and at - max(self.since, self._withheld) > DAY_SECONDS:
            self.since = None
        furthest = max((score for _, score in self._furthest), default=0.0)
        self._remember(max((one.score for one in found), default=0.0), at)
        if self.since is None:
            return list(found)
        known = at - self.began >= DAY_SECONDS
        named = [one for one in found if one.subject in ongoing or (known and one.score > furthest)]
        if len(named) < len(found):
            self._withheld = at
        return [replace(one, confidence=min(one.confidence, MOST_CONFIDENCE)) for one in named]

    def sentence(self, machines: int) -> str:
        """State of the bound as a sentence."""
        if self.since is None:
            return "hardly a machine has left its own past for a day: all that are found are named again"
        first = format_instant(max(self.began + DAY_SECONDS, self.since))
        return (
            f"these machines seem to share no job: {len(self._alarms)} of {machines} left their own past by "
            f"{format_instant(self.since)}, so each is compared with its own past only, and from {first} on a machine "
            "is named if it is further from it than any was before"
        )

    def _count(self, names: set[str], at: float) -> None:
        new = names - set().union(*self._recent)
        self._recent.append(names)
        self._alarms = {name: when for name, when in self._alarms.items() if at - when <= DAY_SECONDS}
        known = new & self._alarms.keys()
        if new and not known:  # several at once have one cause
            known = {min(new)}
        self._alarms |= dict.fromkeys(known, at)

    def _too_many(self, machines: int, at: float) -> bool:
        days = min(max(at - self.began, HOUR_SECONDS), DAY_SECONDS) / DAY_SECONDS
        enough = len(self._alarms) > CROWD
        return enough and at_least(len(self._alarms), machines * days / DAYS_AN_ALARM) < UNLIKELY

    def _remember(self, score: float, at: float) -> None:
        day = int(at // DAY_SECONDS)
        if self._furthest and self._furthest[-1][0] == day:
            score = max(score, self._furthest.pop()[1])
        self._furthest.append((day, score))


def at_least(count: int, expected: float) -> float:
    """Chance of so many independent events, or more, where others are expected."""
    term = total = math.exp(-expected)
    for number in range(1, count):
        term *= expected / number
        total += term
    return max(1.0 - total, 0.0) if count else 1.0
