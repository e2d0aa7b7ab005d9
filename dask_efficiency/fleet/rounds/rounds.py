"""Rounds: a finding is told once when it begins, and once when it has ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from dask_efficiency.accounts.slow_worker import SlowWorker

#: A finding has ended once so many rounds in a row did not make it: one that is near a threshold comes and goes.
END_ROUNDS = 2


class Change(StrEnum):
    """What became of a finding in a round."""

    BEGINS = "begins"
    #: The machine is no longer unlike its peers.
    ENDS = "ends"
    #: The machine is no longer there.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell.

    Parameters
    ----------
    change
        What happened.
    at
        Time of the round, in seconds since the epoch.
    finding
        As it was when it was made last; ``since`` as it was when it began.
    """

    change: Change
    at: float
    finding: SlowWorker


@dataclass(frozen=True, slots=True)
class _Ongoing:
    finding: SlowWorker
    #: Rounds in a row that did not make it.
    missed: int = 0


class Rounds:
    """The findings that go on, from one round to the next."""

    def __init__(self) -> None:
        self._ongoing: dict[str, _Ongoing] = {}

    @property
    def ongoing(self) -> tuple[SlowWorker, ...]:
        """Those that began and have not ended, the oldest first."""
        return tuple(one.finding for one in self._ongoing.values())

    def judged(self, findings: Iterable[SlowWorker], present: Collection[str], *, at: float) -> list[Event]:
        """Take what a round found.

        Parameters
        ----------
        findings
            Of one machine, the first one counts.
        present
            The machines of which there were samples.
        at
            When, in seconds since the epoch.

        Returns
        -------
        list
            What is new: first what ended, in the order in which it began, then what begins.
        """
        found: dict[str, SlowWorker] = {}
        for finding in findings:
            found.setdefault(finding.subject, finding)
        ended = []
        for name, one in list(self._ongoing.items()):
            if name in found:
                self._ongoing[name] = _Ongoing(replace(found[name], since=one.finding.since))
            elif name not in present or one.missed + 1 >= END_ROUNDS:
                del self._ongoing[name]
                ended.append(Event(Change.ENDS if name in present else Change.GONE, at, one.finding))
            else:
                self._ongoing[name] = replace(one, missed=one.missed + 1)
        begun = []
        for name, finding in found.items():
            if name not in self._ongoing:
                self._ongoing[name] = _Ongoing(finding)
                begun.append(Event(Change.BEGINS, at, finding))
        return ended + begun
