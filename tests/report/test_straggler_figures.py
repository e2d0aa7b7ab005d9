import math
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker
from dask_efficiency.report.sections import report as sections
from dask_efficiency.report.sections.stragglers import MAX_STRAGGLERS, SIGNAL_NAMES, stragglers
from dask_efficiency.show.document import Document
from dask_efficiency.show.extent import PAGE
from dask_efficiency.show.html.render import fragment, page
from dask_efficiency.show.terminal.plain import plain
from dask_efficiency.straggler.signals import SIGNALS
from tests.report.samples import by_hand, findings

DURATION = Evidence("duration", 2.2, 1.0, 0.9, 1.1, 9.0, 100)
SHARE = Evidence("cpu_share", 0.1, 0.9, 0.85, 0.95, 9.0, 100)
SLOW = SlowWorker("w3", "h3", Cause.CONTENTION, 3.0, 0.99, 12.0, 2.2, None, (DURATION, SHARE))


def straggler_section(report):
    """What a page says of the stragglers."""
    return fragment(Document("", "", "", (stragglers(report, PAGE),)))


def test_a_report_without_stragglers_says_nothing_of_them():
    assert stragglers(by_hand()).rows == ()
    assert stragglers(by_hand(), PAGE).blocks == ()
    assert "traggler" not in plain(by_hand().document)


def test_a_straggler_stands_with_its_cause_its_effect_and_what_to_look_at():
    part = stragglers(by_hand(started=10.0, stragglers=(SLOW,)))
    assert part.rows == (("w3", "h3", "contention", "2.20x", "after 2.0 s", "99 %"),)
    assert part.lines[0].startswith("contention: others use its cores. Look for")
    assert "w3" in plain(by_hand(stragglers=(SLOW,)).document)


def test_what_began_before_the_report_and_what_is_not_known_are_said_as_such():
    said = [row[4] for row in stragglers(by_hand(started=20.0, stragglers=(SLOW, replace(SLOW, since=math.nan)))).rows]
    assert said == ["the beginning", "-"]


def test_a_host_is_told_from_a_worker():
    host = replace(SLOW, worker="")
    assert stragglers(by_hand(stragglers=(host,))).rows[0][0] == "(all of the host)"
    assert "host h3" in straggler_section(by_hand(stragglers=(host,)))


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


def test_a_worker_is_drawn_where_its_signals_are_beside_those_of_its_peers():
    duration, share = positions(straggler_section(by_hand(stragglers=(SLOW,))))
    assert duration["left"] < duration["median"] < duration["right"] < duration["dot"]
    assert share["dot"] < share["left"] < share["median"] < share["right"]


def test_many_stragglers_are_cut_and_counted():
    many = by_hand(stragglers=tuple(replace(SLOW, worker=f"w{i}") for i in range(3 * MAX_STRAGGLERS)))
    part = stragglers(many)
    assert len(part.rows) == MAX_STRAGGLERS
    assert part.lines[-1] == f"the {MAX_STRAGGLERS} most certain of {3 * MAX_STRAGGLERS}:"
    assert len(positions(straggler_section(many))) == 2 * MAX_STRAGGLERS


def test_every_signal_of_the_watch_has_a_name():
    assert SIGNAL_NAMES.keys() >= set(SIGNALS)


@given(st.lists(findings(), min_size=1, max_size=4).map(tuple))
def test_whatever_the_findings_are_the_page_holds_and_draws_them_within_itself(found):
    report = by_hand(stragglers=found)
    html = page(sections.page(report))
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    for each in positions(straggler_section(report)):
        assert all(0 <= place <= 101 for place in each.values())
