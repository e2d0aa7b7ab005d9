"""What is told of a finding of a fleet: a line, a JSON object, and the body that Alertmanager sends to webhooks."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dask_efficiency.accounts.slow_worker import Evidence, SlowWorker
from dask_efficiency.fleet.rounds.rounds import Change, Event
from dask_efficiency.show.figures import harmless
from dask_efficiency.straggler.wording import as_finding

#: The name that a finding has as an alert.
ALERT = "DaskEfficiencyMachineFinding"

#: Version of the webhook's body, as Alertmanager numbers it.
WEBHOOK_VERSION = "4"

#: Signals that a line names, at most.
_SHOWN = 3

#: What Alertmanager writes for an end that is not there yet.
_NO_END = "0001-01-01T00:00:00Z"


def line(event: Event) -> str:
    """A line for people."""
    return harmless(_line(event))


def _line(event: Event) -> str:
    slow, title = event.finding, as_finding(event.finding).title
    text = f"{instant(event.at)} {event.change:<6} {slow.subject[:200]}"
    since = f"since {instant(slow.since)}"
    if event.change is not Change.BEGINS:
        return f"{text}: {title}; {since}"
    signals = "".join(f"; {_signal(evidence)}" for evidence in slow.evidence[:_SHOWN])
    if slow.workers:
        text += f" (workers {', '.join(slow.workers)[:200]})"
    return f"{text}: {title}{signals}; {since}, confidence {slow.confidence:.0%}"


def record(event: Event) -> dict[str, Any]:
    """As values that JSON has."""
    return {"change": str(event.change), "at": event.at, **_told(event.finding)}


def _told(slow: SlowWorker) -> dict[str, Any]:
    """What is the matter, and who it is with what was measured."""
    return {"finding": as_finding(slow).to_dict(), "slow_worker": slow.to_dict()}


def webhook(events: Sequence[Event], *, source: str) -> dict[str, Any]:
    """The body that Alertmanager would send: all of them fire, or all are resolved.

    Parameters
    ----------
    events
        At least one, and all of one kind.
    source
        Where the metrics are: a URL, or a scheduler's address.
    """
    firing = events[0].change is Change.BEGINS
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
    identity = json.dumps([common, slow.subject, instant(slow.since)])
    firing = event.change is Change.BEGINS
    return {
        "status": "firing" if firing else "resolved",
        "labels": labels,
        "annotations": {
            "summary": line(event),
            "description": ". ".join(as_finding(slow).lines),
            "confidence": f"{slow.confidence:.3f}",
            **{name: json.dumps(value) for name, value in _told(slow).items()},
        },
        "startsAt": instant(slow.since),
        "endsAt": _NO_END if firing else instant(event.at),
        "generatorURL": common["source"],
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16],
    }


def instant(at: float) -> str:
    """A time as RFC 3339 has it, to the second."""
    if not math.isfinite(at):
        return _NO_END
    return datetime.fromtimestamp(round(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _signal(evidence: Evidence) -> str:
    return f"{evidence.signal} {evidence.value:.4g} beside {evidence.peers:.4g}"
