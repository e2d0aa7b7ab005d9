"""What is told of a finding of a fleet: a line, a JSON object, and the body that Alertmanager sends to webhooks."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from dask_efficiency.accounts.slow_worker import Evidence
from dask_efficiency.fleet.rounds.rounds import Change, Event
from dask_efficiency.straggler.wording import MEANINGS

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
    finding = event.finding
    text = f"{instant(event.at)} {event.change:<6} {finding.subject[:200]}"
    if event.change is not Change.BEGINS:
        return f"{text}: {finding.cause}, since {instant(finding.since)}"
    signals = ", ".join(_signal(evidence) for evidence in finding.evidence[:_SHOWN])
    if finding.workers:
        text += f" (workers {', '.join(finding.workers)[:200]})"
    return (
        f"{text}: {finding.cause}: {signals or MEANINGS[finding.cause][0]}; since {instant(finding.since)}, "
        f"confidence {finding.confidence:.0%}"
    )


def record(event: Event) -> dict[str, Any]:
    """As values that JSON has."""
    return {"change": str(event.change), "at": event.at, "finding": event.finding.to_dict()}


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
    finding = event.finding
    meaning, look = MEANINGS[finding.cause]
    labels = common | {"machine": finding.subject, "cause": str(finding.cause)}
    # The cause may change while it goes on; the alert is the same.
    identity = json.dumps([common, finding.subject, instant(finding.since)])
    firing = event.change is Change.BEGINS
    return {
        "status": "firing" if firing else "resolved",
        "labels": labels,
        "annotations": {
            "summary": line(event),
            "description": f"{meaning}; {look}",
            "confidence": f"{finding.confidence:.3f}",
            "finding": json.dumps(finding.to_dict()),
        },
        "startsAt": instant(finding.since),
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
