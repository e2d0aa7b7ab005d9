from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dask_efficiency.preflights.judge.links import MeasuredPair
from dask_efficiency.preflights.judge.readings import Component, Subject
from dask_efficiency.preflights.judge.result import PreflightResult
from dask_efficiency.preflights.sections import document, headline
from dask_efficiency.report.findings import MAX_HEADLINE
from dask_efficiency.show.html.render import fragment
from dask_efficiency.show.terminal import plain
from tests.preflights.judge.clusters import all_rounds, subject

HEALTHY = tuple(subject(f"w{i}", cpu=3e10, disk=2e8) for i in range(3))
SLOW = subject("w3", cpu=3e10, disk=1e8)


def test_the_headline_names_the_slow_one_with_its_cause() -> None:
    values = PreflightResult((*HEALTHY, SLOW), seconds=12.0)
    assert headline(values) == values.headline == "1 of 4 workers is slow"
    text = plain(document(values))
    assert "4 workers, 12.0 s" in text
    assert "1. Slow worker, its disk is slow. Worker w3, 2.00x as long for the same work\n   Look at where it" in text


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (PreflightResult(HEALTHY), "None of 3 workers is slow"),
        (PreflightResult(reason="the cluster is busy"), "Nothing was tested: the cluster is busy"),
        (PreflightResult((Subject("a", "a", "h", not_tested="it left meanwhile"),)), "Nothing was tested"),
        (PreflightResult((*HEALTHY, Subject("a", "a", "h", broken="no answer"))), "1 of 4 workers is slow"),
    ],
)
def test_the_headline_counts_findings_and_the_untested(values: PreflightResult, line: str) -> None:
    assert headline(values) == line
    assert len(headline(PreflightResult(reason="busy " * 100))) == MAX_HEADLINE


def test_a_slow_path_is_named_by_its_hosts() -> None:
    hosts = {"a0": "east-0", "a1": "east-1", "b0": "west-0", "b1": "west-1"}
    links, *_ = all_rounds(hosts, lambda pair: 4.0 if pair.first[0] != pair.second[0] else 1.0)
    subjects = tuple(subject(name, host=host, cpu=3e10) for name, host in hosts.items())
    values = PreflightResult(subjects, links.links)
    assert headline(values) == "None of 4 workers is slow; 1 slow path between hosts"
    assert not values.passed
    assert not values.slow_workers
    (path,) = values.findings
    assert path.lines[0] == (
        "Slow path in the network. Between east-0, east-1 and west-0, west-1, 4.00x as long as within each side"
    )
    assert path.to_dict()["evidence"] == {"times": 4.0, "pairs": 4}
    assert values.to_dict()["paths"] == [
        {"hosts": [["east-0", "east-1"], ["west-0", "west-1"]], "ratio": 4.0, "pairs": 4}
    ]


def test_gaps_are_listed_and_those_of_all_workers_once() -> None:
    no_gpu = [replace(one, missing={Component.GPU: "torch sees no GPU"}) for one in HEALTHY]
    full = replace(no_gpu[0], missing={**no_gpu[0].missing, Component.DISK: "cannot write to /x: No space left"})
    text = plain(document(PreflightResult((full, *no_gpu[1:]))))
    assert text.count("torch sees no GPU") == 1
    assert "cannot write to /x: No space left" in text


def test_names_of_users_are_harmless_in_a_page() -> None:
    name = "<script>alert(1)</script>"
    bad = replace(SLOW, name=name, missing={Component.GPU: name}, host=name)
    assert "<script>" not in fragment(document(PreflightResult((*HEALTHY, bad))))


def test_the_result_shows_itself_and_is_plain_data() -> None:
    links = (MeasuredPair("w0", "w1", {Component.SEND: 1e-9, Component.RECEIVE: 2e-9}),)
    result = PreflightResult((*HEALTHY, SLOW), links, started=0.0)
    assert "its disk is slow" in " ".join(str(result).split())
    assert "<table" in result._repr_html_()
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["slow"] == ["w3"]
    assert [one["kind"] for one in content["findings"]] == ["slow-worker"]
    assert [one["worker"] for one in content["slow_workers"]] == ["w3"]
    assert content["workers"][0]["measured"]["send"]["value"] == pytest.approx(1e9)
