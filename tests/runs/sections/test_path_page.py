import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import escape

from dask_efficiency import CriticalPath, EfficiencyReport, critical_path
from dask_efficiency.report.sections import report as report_sections
from dask_efficiency.runs.path.kinds import KINDS, Kind, Segments
from dask_efficiency.runs.sections import path as sections
from dask_efficiency.runs.sections.by_kind import KIND_COLOURS, STEPS
from dask_efficiency.runs.sections.path import to_dict
from dask_efficiency.show.html.render import fragment, page
from tests.report.samples import by_hand
from tests.report.test_in_a_browser import Page
from tests.runs.path_samples import hostile, transfers
from tests.simulated_traces import tiny, tree


def render_html(path: CriticalPath) -> str:
    return fragment(sections.document(path))


def render_page(path: CriticalPath) -> str:
    return page(sections.page(path))


def report_page(report: EfficiencyReport) -> str:
    return page(report_sections.page(report))


def in_report(path: CriticalPath) -> str:
    return report_page(by_hand(trace=path.trace))


@pytest.mark.parametrize("render", [render_html, render_page, in_report])
def test_headline_bounds_and_tables_are_shown_and_no_name_becomes_markup(render: Any) -> None:
    path = transfers()
    html = render(path)
    assert escape(path.headline) in html
    for text in ("no cluster is faster", "By task prefix", "By worker", "an input comes from another worker"):
        assert text in html
    # a fragment has no script, no request and no id
    assert path._repr_html_() == render_html(path)
    assert not re.search(r"<script|<link|\ssrc=|url\(|\sid=", render_html(path))
    html = render(hostile())
    for smuggled in ("<script>alert", "<img", 'onerror=alert(1)>"', "\x1b", "\u202e"):
        assert smuggled not in html


def drawn(path: CriticalPath) -> list[tuple[float, float, str]]:
    """Steps of the strip along the run: where each begins and its width, in per cent, and its colour."""
    shapes = re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%" height="26" fill="(#\w+)"', render_html(path))
    return [(float(left), float(width), colour) for left, width, colour in shapes]


def test_the_picture_shows_the_run_from_start_to_end_without_gaps() -> None:
    path = transfers()
    end = 0.0
    shown: Counter[str] = Counter()
    for left, width, colour in drawn(path):
        assert left == pytest.approx(end)
        end += width
        shown[colour] += width  # type: ignore[assignment]  # shares
    assert end == pytest.approx(100)
    long = critical_path(tiny(5000))
    assert len(long.segments) > 1000
    assert len(render_page(long)) < 100_000, "the page of a long path is small"
    transfer = 100 * path.seconds("kind")["transfer"] / path.makespan_seconds
    assert shown[KIND_COLOURS[Kind.TRANSFER]] == pytest.approx(transfer, abs=3)


def test_a_step_of_the_picture_is_of_the_kind_that_takes_most_of_it() -> None:
    path = transfers()
    start = path.scope.start
    ends = start + np.array([0, 100, 400, 500, 800, 900, 1000 * STEPS])
    names = [Kind.REPORT, Kind.TRANSFER, Kind.REPORT, Kind.TRANSFER, Kind.REPORT, Kind.COMPUTE_CPU]
    columns = {"kind": [KINDS.index(name) for name in names], "start": ends[:-1], "stop": ends[1:]}
    scope = replace(path.scope, stop=int(ends[-1]))
    first, rest = KIND_COLOURS[Kind.TRANSFER], KIND_COLOURS[Kind.COMPUTE_CPU]
    step = 100 / STEPS
    found = drawn(replace(path, segments=Segments.from_columns(columns), scope=scope))
    assert found == [(0.0, step, first), (step, 100 - step, rest)]


def test_only_a_report_with_a_trace_has_a_critical_path() -> None:
    path = critical_path(tree(8))
    assert "Critical path: why it took so long" in report_page(by_hand(trace=path.trace))
    assert by_hand(trace=path.trace).critical_path().headline == path.headline
    assert "Critical path" not in report_page(by_hand())
    with pytest.raises(ValueError, match="has no trace; expected one of efficiency_report"):
        by_hand().critical_path()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_opens_offline_in_a_browser_and_shows_the_figures(chromium: Any, tmp_path: Path, scheme: str) -> None:
    path = transfers()
    opened = Page(chromium.new_context(color_scheme=scheme).new_page(), tmp_path / "path.html", path)
    opened.page.wait_for_load_state("networkidle")
    assert opened.requests == [(tmp_path / "path.html").as_uri()]
    assert opened.faults == []
    assert opened.page.inner_text(".de-headline") == f"{path.headline}."
    assert json.loads(opened.page.inner_text("#data")) == to_dict(path)
    cells = opened.page.locator("table").first.locator("tr", has_text="transfer-queue").all_inner_texts()
    assert f"{1000 * path.seconds('kind')['transfer-queue']:.1f}" in cells[0]
    opened.page.close()
