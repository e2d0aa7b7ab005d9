"""Findings as text: what is said, that names are harmless, that lines fit."""

from __future__ import annotations

import math

import pytest

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker
from dask_efficiency.report.sections.stragglers import MAX_STRAGGLERS, document
from dask_efficiency.runs.stragglers.offline import Judgement
from dask_efficiency.show.terminal.plain import plain

EVIDENCE = (
    Evidence("duration", 1.6, 1.0, 0.95, 1.05, 9.0, 40),
    Evidence("new-signal", math.nan, 1.0, 1.0, 1.0, 0.1, 3),
)
FINDING = SlowWorker("w3", "node-1", Cause.SLOW_CPU, 3.0, 0.97, 0.0, 1.6, 12.5, EVIDENCE)


def render(found: Judgement, name: str, width: int = 80) -> str:
    return plain(document(found, name), width)


def test_a_finding_is_told_with_cause_cost_and_signals() -> None:
    text = render(Judgement((FINDING,), 8), "run.trace")
    assert "Of 8 workers, w3 takes 1.60 times as long" in text
    assert "without that the run is 12.5 s" in text
    for row in (["w3", "node-1", "slow-cpu", "1.60", "x", "12.5", "s", "97", "%"], ["new-signal", "-"]):
        assert any(line.split()[: len(row)] == row for line in text.splitlines())
    assert "time in the thread" in text
    assert "look at the clock frequency" in text


def test_a_slow_host_is_named_as_a_whole() -> None:
    host = SlowWorker("", "node-1", Cause.DISK, 3.0, 0.97, math.nan, 1.6)
    assert "all of node-1 takes 1.60 times" in render(Judgement((host,), 8), "run").replace("\n", " ")


def test_nobody_found_is_said_with_who_could_not_be_judged() -> None:
    text = render(Judgement((), 8, ("a", "b", "c", "d"), ("A note.",)), "run")
    assert "None among 8 workers." in text
    assert "A note." in text
    assert "Too little to judge by: a, b, c and 1 more." in text


def test_the_rest_of_many_findings_is_a_number() -> None:
    many = tuple(SlowWorker(f"w{i}", "", Cause.UNKNOWN, 1.0, 0.5, 0.0, 1.2) for i in range(MAX_STRAGGLERS + 7))
    assert "7 more are not shown." in render(Judgement(many, 100), "run")


@pytest.mark.parametrize("width", [72, 80, 200])
def test_lines_fit_and_names_are_harmless(width: int) -> None:
    evil = SlowWorker("\x1b[31m" + "w" * 500, "h" * 300, Cause.NETWORK, 2.0, 0.9, 0.0, 1.3, None, EVIDENCE)
    text = render(Judgement((evil,), 3, ("\x07",)), "\x1b]0;title\x07", width)
    assert text.isascii()
    assert all(character.isprintable() or character == "\n" for character in text)
    assert all(len(line) <= width for line in text.splitlines())
