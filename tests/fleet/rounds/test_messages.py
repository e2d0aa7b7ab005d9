"""What is told of findings, in a line and as Alertmanager's webhook."""

from __future__ import annotations

import json
from dataclasses import replace

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker
from dask_efficiency.fleet.rounds.messages import line, record, webhook
from dask_efficiency.fleet.rounds.rounds import Change, Event
from dask_efficiency.straggler.wording import as_finding

FINDING = SlowWorker(
    "m04", "", Cause.NETWORK, 1.5, 0.956, 1_700_000_000.4, None, None, (Evidence("pfc", 812.3, 4.1, 1, 9, 30, 60),)
)
BEGINS = Event(Change.BEGINS, 1_700_000_480.0, FINDING)


def test_a_line_says_when_who_why_and_by_what() -> None:
    assert line(BEGINS) == (
        "2023-11-14T22:21:20Z begins m04: Slow worker, its transfers are slow; pfc 812.3 beside 4.1; "
        "since 2023-11-14T22:13:20Z, confidence 96%"
    )
    ended = line(replace(BEGINS, change=Change.ENDS))
    assert ended == "2023-11-14T22:21:20Z ends   m04: Slow worker, its transfers are slow; since 2023-11-14T22:13:20Z"


def test_a_line_of_a_host_says_who_is_on_it() -> None:
    host = replace(BEGINS, finding=replace(FINDING, worker="", host="node1", workers=("w1", "w2")))
    assert " begins node1 (workers w1, w2): Slow host, its transfers are slow; " in line(host)
    assert SlowWorker.from_dict(json.loads(json.dumps(record(host)))["slow_worker"]) == host.finding


def test_a_record_has_the_finding_and_the_whole_machine() -> None:
    told = json.loads(json.dumps(record(BEGINS)))
    assert told["finding"] == as_finding(FINDING).to_dict()
    assert told["finding"]["evidence"] == {"score": 1.5, "pfc": 812.3}
    assert SlowWorker.from_dict(told["slow_worker"]) == FINDING


def test_the_webhook_has_what_alertmanager_sends() -> None:
    body = webhook([BEGINS], source="http://prometheus:9090")
    assert body.keys() == {
        "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels",
        "commonAnnotations", "externalURL", "alerts",
    }  # fmt: skip
    (alert,) = body["alerts"]
    assert alert.keys() == {"status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"}
    assert (body["status"], alert["status"], body["version"]) == ("firing", "firing", "4")
    assert alert["labels"]["machine"] == "m04"
    told = alert["annotations"]
    assert told["description"].startswith("Slow worker, its transfers are slow. Worker m04. Look at its network card,")
    assert json.loads(told["finding"]) == as_finding(FINDING).to_dict()
    assert SlowWorker.from_dict(json.loads(told["slow_worker"])) == FINDING
    assert all(isinstance(value, str) for part in ("labels", "annotations") for value in alert[part].values())
    json.dumps(body)


def test_an_alert_is_known_by_its_fingerprint_until_it_is_resolved() -> None:
    later = Event(Change.ENDS, 1_700_001_000.0, replace(FINDING, cause=Cause.GPU))
    firing, resolved = (webhook([event], source="x")["alerts"][0] for event in (BEGINS, later))
    assert firing["fingerprint"] == resolved["fingerprint"]
    assert (resolved["status"], resolved["endsAt"]) == ("resolved", "2023-11-14T22:30:00Z")
    other = replace(BEGINS, finding=replace(FINDING, worker="m05"))
    assert webhook([other], source="x")["alerts"][0]["fingerprint"] != firing["fingerprint"]
