import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sections.report import page, sections
from dask_efficiency.report.sections.stragglers import MAX_STRAGGLERS, SIGNAL_NAMES, headline, long_tail, stragglers
from dask_efficiency.report.sections.stragglers import document as judgement_document
from dask_efficiency.report.sections.stragglers import skew as skew_section
from dask_efficiency.runs.stragglers.long_tail import LongTask
from dask_efficiency.runs.stragglers.offline import Judgement
from dask_efficiency.show.document import MAX_ROWS, PAGE, SCREEN, Document, Section, Table
from dask_efficiency.show.figures import NAME_LENGTH
from dask_efficiency.show.html.render import fragment
from dask_efficiency.show.html.render import page as html_page
from dask_efficiency.show.terminal import plain
from dask_efficiency.straggler.signals import FINISHED, LIVE
from tests.report.samples import HOSTILE_NAMES, anything, by_hand, report_of, seconds, skew

EVIDENCE = (
    Evidence("duration", 1.6, 1.0, 0.95, 1.05, 9.0, 40),
    Evidence("gpu_temperature", math.nan, 61.25, 1.0, 12345.6, 0.1, 3),
)
FINDING = SlowWorker("w3", "node-1", Cause.SLOW_CPU, 3.0, 0.97, 0.0, 1.6, 12.5, EVIDENCE)


def render(found: Judgement, name: str, width: int = 80) -> str:
    return plain(judgement_document(found, name), width)


def test_a_finding_has_cause_cost_and_signals() -> None:
    text = render(Judgement((FINDING,), 8), "run.trace")
    assert "1 of 8 workers is slow; 12.5 s can be saved." in text
    assert "1. Slow worker, its CPU is slower: saves 12.5 s. Worker w3, 1.60x as long" in text
    for row in (
        ["w3", "node-1", "slow-cpu", "1.60", "x", "12.5", "s", "97", "%"],
        ["gpu_temperature", "-", "61.2", "1", "12346", "3"],
    ):
        assert any(line.split()[: len(row)] == row for line in text.splitlines())
    assert "time in the thread" in text
    assert "   Look at the clock frequency" in text
    host = SlowWorker("", "node-1", Cause.DISK, 3.0, 0.97, math.nan, 1.6)
    assert "Slow host, its disk is slow. Host node-1, 1.60x as long" in render(Judgement((host,), 8), "run")


def test_without_findings_the_unjudged_workers_are_named() -> None:
    text = render(Judgement((), 8, ("a", "b", "c", "d"), ("A note.",)), "run")
    assert "None of 8 workers is slow." in text
    assert "A note." in text
    assert "Too little to judge by: workers a, b, c and 1 more." in text


def test_findings_after_the_first_three_are_in_sections() -> None:
    disk = replace(FINDING, cause=Cause.DISK)
    long = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)
    text = render(Judgement((*[FINDING] * 3, disk), 8, long_tasks=(long,)), "run")
    assert headline(Judgement((FINDING, disk), 8)) == "2 of 8 workers are slow; 12.5 s can be saved"
    assert text.count("How w3 compares with its peers") == 3
    assert "More to do\n  Look at where it spills to" in text
    assert "Long tail\n  Task ('join', 13) took 21.0 s, 40 times the median" in text


@pytest.mark.parametrize("width", [72, 80, 200])
def test_lines_fit_and_names_are_harmless(width: int) -> None:
    evil = SlowWorker("\x1b[31m" + "w" * 500, "h" * 300, Cause.NETWORK, 2.0, 0.9, 0.0, 1.3, None, EVIDENCE)
    text = render(Judgement((evil,), 3, ("\x07",)), "\x1b]0;title\x07", width)
    assert text.isascii()
    assert all(character.isprintable() or character == "\n" for character in text)
    assert all(len(line) <= width for line in text.splitlines())


SENTENCE = "The largest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
KNOWN = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)


def tables(found: Section) -> list[Table]:
    return [block for block in found.blocks if isinstance(block, Table)]


def skewed_report(**fields: object) -> EfficiencyReport:
    given = {"skew": {"join": skew(), "even": skew(max_seconds=0.6, max_bytes=2.0**20)}, "cluster_seconds": 40.0}
    return report_of(seconds(thread_cpu=70, idle=90), **(given | fields))


def test_an_uneven_prefix_has_a_sentence_and_figures() -> None:
    found = skew_section(skewed_report())
    assert found.title == "Skew"
    assert found.lines == (SENTENCE,)
    times, sizes = tables(found)
    assert times.heads == ("prefix", "tasks", "median", "95 %", "max", "times", "longest task")
    assert times.rows == (("join", "200", "525 ms", "610 ms", "21.0 s", "40x", "('join', 13)"),)
    assert sizes.heads == ("prefix", "tasks", "median", "95 %", "max", "times", "largest result")
    assert sizes.rows == (("join", "200", "1.0 MiB", "1.5 MiB", "40.0 MiB", "40x", "('join', 13)"),)


def test_even_tasks_are_absent_on_a_screen_and_folded_on_a_page() -> None:
    even = skewed_report(skew={"even": skew(max_seconds=0.6, max_bytes=2.0**20)})
    assert not skew_section(even).blocks
    (inner,) = skew_section(even, PAGE).blocks
    assert isinstance(inner, Section)
    assert (inner.title, inner.folded) == ("Tasks by prefix", True)
    assert not skew_section(report_of(), PAGE).blocks


def test_many_prefixes_are_bounded_and_their_names_harmless() -> None:
    names = (*HOSTILE_NAMES, *map(str, range(2 * MAX_ROWS)))
    report = skewed_report(skew={name: skew(longest_key=name, largest_key=name or "x") for name in names})
    for extent in (SCREEN, PAGE):
        found = skew_section(report, extent)
        assert len(found.lines) == 3
        for table in tables(found):
            assert len(table.rows) == extent.prefixes
            assert all(len(str(cell)) <= NAME_LENGTH and str(cell).isprintable() for row in table.rows for cell in row)
    inner = skew_section(report, PAGE).sections[0]
    assert inner.title == f"Tasks of {MAX_ROWS} of {len(names)} prefixes"
    assert [len(table.rows) for table in tables(inner)] == [MAX_ROWS, MAX_ROWS]
    # results of unknown size are in no table
    unknown = skew(median_bytes=0.0, p95_bytes=0.0, max_bytes=0.0, largest_key="")
    (inner,) = skew_section(skewed_report(skew={"join": unknown}), PAGE).sections
    assert [table.heads[-1] for table in tables(inner)] == ["longest task"]


def test_skew_stands_behind_the_long_tail_and_does_not_repeat_it() -> None:
    report = skewed_report(long_tail=(KNOWN,))
    titles = [part.title for part in sections(report)]
    assert titles.index("Skew") == titles.index("Long tail") + 1
    assert skew_section(report).lines == ()
    assert len(tables(skew_section(report))) == 2
    (line,) = long_tail(report).lines
    assert line.endswith("its input is 20 times as large; for 19.0 s nothing else ran")
    assert len(long_tail(skewed_report(long_tail=(KNOWN,) * 6)).lines) == 5


DURATION = Evidence("duration", 2.2, 1.0, 0.9, 1.1, 9.0, 100)
SHARE = Evidence("cpu_share", 0.1, 0.9, 0.85, 0.95, 9.0, 100)
SLOW = SlowWorker("w3", "h3", Cause.CONTENTION, 3.0, 0.99, 12.0, 2.2, None, (DURATION, SHARE))


def straggler_section(report):
    return fragment(Document("", "", "", (stragglers(report, PAGE),)))


def test_a_straggler_has_its_cause_its_effect_its_start_and_advice_and_a_report_without_has_no_section():
    part = stragglers(by_hand(started=10.0, stragglers=(SLOW,)))
    assert part.rows == (("w3", "h3", "contention", "2.20x", "after 2.0 s", "99 %"),)
    assert part.lines[0].startswith("contention: others use its cores. Look for")
    assert "w3" in plain(by_hand(stragglers=(SLOW,)).document)
    begun_before = by_hand(started=20.0, stragglers=(SLOW, replace(SLOW, since=math.nan)))
    assert [row[4] for row in stragglers(begun_before).rows] == ["the beginning", "-"]
    of_host = by_hand(stragglers=(replace(SLOW, worker=""),))
    assert stragglers(of_host).rows[0][0] == "(all of the host)"
    assert "host h3" in straggler_section(of_host)
    assert stragglers(by_hand()).rows == stragglers(by_hand(), PAGE).blocks == ()
    assert "traggler" not in plain(by_hand().document)


def positions(html: str) -> list[dict[str, float]]:
    """Where dot, median and bar stand, in per cent, for each signal drawn."""
    found = []
    for drawn in re.findall(r'<td class="de-peers">(.*?)</td>', html):
        bar = re.search(r'<rect x="([-\d.]+)%" width="([-\d.]+)%"', drawn)
        median = re.search(r'class="de-median" x1="([-\d.]+)%"', drawn)
        dot = re.search(r'cx="([-\d.]+)%"', drawn)
        left, width = float(bar[1]), float(bar[2])
        found.append({"left": left, "right": left + width, "median": float(median[1]), "dot": float(dot[1])})
    return found


def test_signals_have_names_and_are_drawn_against_those_of_the_peers():
    assert SIGNAL_NAMES.keys() >= FINISHED.keys() | LIVE.keys()
    duration, share = positions(straggler_section(by_hand(stragglers=(SLOW,))))
    assert duration["left"] < duration["median"] < duration["right"] < duration["dot"]
    assert share["dot"] < share["left"] < share["median"] < share["right"]

    metric = replace(SLOW, evidence=(replace(DURATION, signal="gpu_temperature", value=80.0, peers=61.25),))
    evidence = stragglers(by_hand(stragglers=(metric,)), PAGE).blocks[-1]
    assert evidence.rows == (("worker w3", "gpu_temperature", "80", "61.2"),)

    crowded = replace(SLOW, evidence=(DURATION,) * 5)
    assert len(positions(straggler_section(by_hand(stragglers=(crowded,))))) == 4
    many = by_hand(stragglers=tuple(replace(SLOW, worker=f"w{i}") for i in range(3 * MAX_STRAGGLERS)))
    part = stragglers(many)
    assert len(part.rows) == MAX_STRAGGLERS
    assert part.lines[-1] == f"the {MAX_STRAGGLERS} most certain of {3 * MAX_STRAGGLERS}:"
    assert len(positions(straggler_section(many))) == 2 * MAX_STRAGGLERS


@given(st.lists(anything(SlowWorker), min_size=1, max_size=4).map(tuple))
def test_the_page_of_any_findings_draws_them_within_itself(found):
    report = by_hand(stragglers=found)
    html = html_page(page(report))
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    for each in positions(straggler_section(report)):
        assert all(0 <= place <= 101 for place in each.values())
