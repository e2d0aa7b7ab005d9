"""Rounds: reports a finding once when it begins and once when it has ended, as a line, as JSON and to webhooks."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.show.figures import NAMES_IN_A_LINE, harmless
from dask_efficiency.straggler.wording import as_finding

#: Rounds in a row without a finding after which it has ended: one near a threshold comes and goes. A guess.
END_ROUNDS = 2


class FindingChange(StrEnum):
    """Change of a finding in a round."""

    BEGINS = "begins"
    #: The machine is no longer unlike its peers.
    ENDS = "ends"
    #: The machine is no longer there.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Event:
    """A finding that begins or has ended, in the round of an instant."""

    change: FindingChange
    at: float
    #: As it was last; ``since`` as it was when it began.
    finding: SlowWorker


class Rounds:
    """Ongoing findings, from one round to the next."""

    def __init__(self) -> None:
        #: By machine, its finding, and rounds in a row without it.
        self._ongoing: dict[str, tuple[SlowWorker, int]] = {}

    @property
    def ongoing(self) -> tuple[SlowWorker, ...]:
        """Ongoing findings, the oldest first."""
        return tuple(finding for finding, _ in self._ongoing.values())

    def judged(self, findings: Iterable[SlowWorker], present: Collection[str], *, at: float) -> list[Event]:
        """Ends, then beginnings, by a round's findings, the first of each machine, and the machines with samples."""
        found: dict[str, SlowWorker] = {}
        for finding in findings:
            found.setdefault(finding.subject, finding)
        ended = []
        for name, (finding, missed) in list(self._ongoing.items()):
            if name in found:
                self._ongoing[name] = replace(found[name], since=finding.since), 0
            elif name not in present or missed + 1 >= END_ROUNDS:
                del self._ongoing[name]
                ended.append(Event(FindingChange.ENDS if name in present else FindingChange.GONE, at, finding))
            else:
                self._ongoing[name] = finding, missed + 1
        begun = []
        for name, finding in found.items():
            if name not in self._ongoing:
                self._ongoing[name] = finding, 0
                begun.append(Event(FindingChange.BEGINS, at, finding))
        return ended + begun


#: Name of a finding as an alert.
ALERT = "DaskEfficiencyMachineFinding"
#: Version of the webhook's body, as Alertmanager numbers it.
WEBHOOK_VERSION = "4"
#: Alertmanager's value for an end that is not there yet.
_NO_END = "0001-01-01T00:00:00Z"


def as_line(event: Event) -> str:
    """Event as a line for people."""
    slow, title = event.finding, as_finding(event.finding).title
    text = f"{format_instant(event.at)} {event.change:<6} {slow.subject[:200]}"
    since = f"since {format_instant(slow.since)}"
    if event.change is not FindingChange.BEGINS:
        return harmless(f"{text}: {title}; {since}")
    signals = "".join(
        f"; {one.signal} {one.value:.4g}, peers {one.peers:.4g}" for one in slow.evidence[:NAMES_IN_A_LINE]
    )
    if slow.workers:
        text += f" (workers {', '.join(slow.workers)[:200]})"
    return harmless(f"{text}: {title}{signals}; {since}, confidence {slow.confidence:.0%}")


def as_record(event: Event) -> dict[str, Any]:
    """Event as values that JSON has."""
    return {"change": str(event.change), "at": event.at, **_details(event.finding)}


def _details(slow: SlowWorker) -> dict[str, Any]:
    return {"finding": as_finding(slow).to_dict(), "slow_worker": slow.to_dict()}


def as_webhook(events: Sequence[Event], *, source: str) -> dict[str, Any]:
    """Body that Alertmanager would send of some events of a source, which all fire, or all are resolved."""
    firing = events[0].change is FindingChange.BEGINS
    common = {"alertname": ALERT, "source": source}
    return {
        "version": WEBHOOK_VERSION,
        "groupKey": f'{{}}:{{alertname="{ALERT}", source={json.dumps(source)}}}',
        "truncatedAlerts": 0,
        "status": "firing" if firing else "resolved",
        "receiver": "dask-efficiency",
        "groupLabels": common,
        "commonLabels": common,
        "commonAnnotations": {},
        "externalURL": source,
        "alerts": [_alert(event, common) for event in events],
    }


def _alert(event: Event, common: dict[str, str]) -> dict[str, Any]:
    slow = event.finding
    labels = common | {"machine": slow.subject, "cause": str(slow.cause)}
    # The cause may change while it goes on; the alert is the same.
    identity = json.dumps([common, slow.subject, format_instant(slow.since)])
    firing = event.change is FindingChange.BEGINS
    return {
        "status": "firing" if firing else "resolved",
        "labels": labels,
        "annotations": {
            "summary": as_line(event),
            "description": ". ".join(as_finding(slow).lines),
            "confidence": f"{slow.confidence:.3f}",
            **{name: json.dumps(value) for name, value in _details(slow).items()},
        },
        "startsAt": format_instant(slow.since),
        "endsAt": _NO_END if firing else format_instant(event.at),
        "generatorURL": common["source"],
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16],
    }


def format_instant(at: float) -> str:
    """Time in RFC 3339, to the second."""
    if not math.isfinite(at):
        return _NO_END
    return datetime.fromtimestamp(round(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
