"""Findings as text: what is said, that names are harmless, that lines fit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker
from dask_efficiency.report.sections.stragglers import MAX_STRAGGLERS, document, headline
from dask_efficiency.runs.stragglers.long_tail import LongTask
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
    assert "1 of 8 workers is slow; 12.5 s can be saved." in text
    assert "1. Slow worker, its CPU is slower: saves 12.5 s. Worker w3, 1.60x as long" in text
    for row in (["w3", "node-1", "slow-cpu", "1.60", "x", "12.5", "s", "97", "%"], ["new-signal", "-"]):
        assert any(line.split()[: len(row)] == row for line in text.splitlines())
    assert "time in the thread" in text
    assert "   Look at the clock frequency" in text


def test_a_slow_host_is_named_as_a_whole() -> None:
    host = SlowWorker("", "node-1", Cause.DISK, 3.0, 0.97, math.nan, 1.6)
    assert "Slow host, its disk is slow. Host node-1, 1.60x as long" in render(Judgement((host,), 8), "run")


def test_nobody_found_is_said_with_who_could_not_be_judged() -> None:
    text = render(Judgement((), 8, ("a", "b", "c", "d"), ("A note.",)), "run")
    assert "None of 8 workers is slow." in text
    assert "A note." in text
    assert "Too little to judge by: a, b, c and 1 more." in text


def test_the_rest_of_many_findings_is_a_number() -> None:
    many = tuple(SlowWorker(f"w{i}", "", Cause.UNKNOWN, 1.0, 0.5, 0.0, 1.2) for i in range(MAX_STRAGGLERS + 7))
    assert "7 more are not shown." in render(Judgement(many, 100), "run")


def test_what_is_beyond_the_first_three_findings_is_in_sections() -> None:
    disk = replace(FINDING, cause=Cause.DISK)
    long = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)
    text = render(Judgement((*[FINDING] * 3, disk), 8, long_tasks=(long,)), "run")
    assert headline(Judgement((FINDING, disk), 8)) == "2 of 8 workers are slow; 12.5 s can be saved"
    assert "More to do\n  Look at where it spills to" in text
    assert "Long tail\n  Task ('join', 13) took 21.0 s, 40 times the median" in text


@pytest.mark.parametrize("width", [72, 80, 200])
def test_lines_fit_and_names_are_harmless(width: int) -> None:
    evil = SlowWorker("\x1b[31m" + "w" * 500, "h" * 300, Cause.NETWORK, 2.0, 0.9, 0.0, 1.3, None, EVIDENCE)
    text = render(Judgement((evil,), 3, ("\x07",)), "\x1b]0;title\x07", width)
    assert text.isascii()
    assert all(character.isprintable() or character == "\n" for character in text)
    assert all(len(line) <= width for line in text.splitlines())
