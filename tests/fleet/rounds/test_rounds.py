from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker
from dask_efficiency.fleet.rounds.rounds import (
    Event,
    FindingChange,
    Rounds,
    as_line,
    as_record,
    as_webhook,
    format_instant,
)
from dask_efficiency.straggler.wording import as_finding

ALL = {"a", "b", "c"}


def finding(name: str, *, since: float = 0.0, cause: Cause = Cause.GPU) -> SlowWorker:
    return SlowWorker(name, "", cause, 1.5, 0.8, since, None)


def changes(rounds: Rounds, *names: str, present: set[str] = ALL) -> list[str]:
    return [f"{event.change} {event.finding.subject}" for event in rounds.judged(map(finding, names), present, at=0.0)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["a", "ab", "ba"], [["begins a"], ["begins b"], []]),
        (["a", "", "a", "", "", "", "a"], [["begins a"], [], [], [], ["ends a"], [], ["begins a"]]),  # two without it
    ],
)
def test_a_finding_begins_once_and_ends_after_two_rounds_without_it(found, expected) -> None:
    rounds = Rounds()
    assert [changes(rounds, *names) for names in found] == expected


def test_a_finding_keeps_its_start_has_the_newest_cause_and_ends_at_once_when_its_machine_is_gone() -> None:
    rounds = Rounds()
    rounds.judged([finding("a", since=100)], ALL, at=200)
    rounds.judged([finding("a", since=300, cause=Cause.DISK)], ALL, at=400)
    (ongoing,) = rounds.ongoing
    assert (ongoing.since, ongoing.cause) == (100, Cause.DISK)
    assert changes(rounds, present={"b"}) == ["gone a"]


@given(st.lists(st.sets(st.sampled_from(sorted(ALL))), max_size=30))
def test_a_finding_that_began_and_did_not_end_goes_on(found: list[set[str]]) -> None:
    rounds = Rounds()
    open_ones: set[str] = set()
    for at, names in enumerate(found):
        for event in rounds.judged(map(finding, sorted(names)), ALL, at=at):
            name = event.finding.subject
            assert (event.change is FindingChange.BEGINS) == (name not in open_ones)
            open_ones ^= {name}
        assert {one.subject for one in rounds.ongoing} == open_ones
        assert names <= open_ones


FINDING = SlowWorker(
    "m04", "", Cause.NETWORK, 1.5, 0.956, 1_700_000_000.4, None, None, (Evidence("pfc", 812.3, 4.1, 1, 9, 30, 60),)
)
BEGINS = Event(FindingChange.BEGINS, 1_700_000_480.0, FINDING)


def test_a_line_has_the_time_the_machine_the_cause_and_the_signals() -> None:
    assert as_line(BEGINS) == (
        "2023-11-14T22:21:20Z begins m04: Slow worker, its transfers are slow; pfc 812.3, peers 4.1; "
        "since 2023-11-14T22:13:20Z, confidence 96%"
    )
    ended = as_line(replace(BEGINS, change=FindingChange.ENDS))
    assert ended == "2023-11-14T22:21:20Z ends   m04: Slow worker, its transfers are slow; since 2023-11-14T22:13:20Z"
    host = replace(BEGINS, finding=replace(FINDING, worker="", host="node1", workers=("w1", "w2")))
    assert " begins node1 (workers w1, w2): Slow host, its transfers are slow; " in as_line(host)


def test_a_record_has_the_finding_and_the_whole_machine() -> None:
    record = json.loads(json.dumps(as_record(BEGINS)))
    assert record["finding"] == as_finding(FINDING).to_dict()
    assert record["finding"]["evidence"] == {"score": 1.5, "pfc": 812.3}
    assert SlowWorker.from_dict(record["slow_worker"]) == FINDING


def test_the_webhook_has_the_fields_that_alertmanager_sends() -> None:
    body = as_webhook([BEGINS], source="http://prometheus:9090")
    assert body.keys() == {
        "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels",
        "commonAnnotations", "externalURL", "alerts",
    }  # fmt: skip
    (alert,) = body["alerts"]
    assert alert.keys() == {"status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"}
    assert (body["status"], alert["status"], body["version"]) == ("firing", "firing", "4")
    assert alert["labels"]["machine"] == "m04"
    record = alert["annotations"]
    assert record["description"].startswith(
        "Slow worker, its transfers are slow. Worker m04. Look at its network card,"
    )
    assert json.loads(record["finding"]) == as_finding(FINDING).to_dict()
    assert SlowWorker.from_dict(json.loads(record["slow_worker"])) == FINDING
    assert all(isinstance(value, str) for part in ("labels", "annotations") for value in alert[part].values())
    json.dumps(body)


def test_an_alert_is_known_by_its_fingerprint_until_it_is_resolved() -> None:
    later = Event(FindingChange.ENDS, 1_700_001_000.0, replace(FINDING, cause=Cause.GPU))
    firing, resolved = (as_webhook([event], source="x")["alerts"][0] for event in (BEGINS, later))
    assert firing["fingerprint"] == resolved["fingerprint"]
    assert (resolved["status"], resolved["endsAt"]) == ("resolved", "2023-11-14T22:30:00Z")
    other = replace(BEGINS, finding=replace(FINDING, worker="m05"))
    assert as_webhook([other], source="x")["alerts"][0]["fingerprint"] != firing["fingerprint"]


def test_an_instant_that_is_none_reads_as_alertmanager_writes_none():
    assert format_instant(float("inf")) == format_instant(float("nan")) == "0001-01-01T00:00:00Z"
