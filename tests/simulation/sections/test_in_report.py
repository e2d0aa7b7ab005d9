from __future__ import annotations

from dask_efficiency.report.sections import report as report_sections
from dask_efficiency.simulation.sections.in_report import with_predictions
from tests.report.samples import by_hand
from tests.simulation.fake_engine import recorded
from tests.simulation.simulation_samples import elsewhere, swept

TITLE = "Simulation: what it would take elsewhere"


def test_predictions_stand_behind_the_critical_path() -> None:
    page = report_sections.page(by_hand(trace=recorded()))
    prediction, sizes = elsewhere(), swept()
    found = with_predictions(page, [prediction, sizes])
    titles = [part.title for part in found.sections]
    assert titles.index(TITLE) == [title.startswith("Critical path") for title in titles].index(True) + 1
    inner = found.sections[titles.index(TITLE)].sections
    assert [part.title for part in inner] == ["On 16 workers of 2 threads", "By number of workers"]
    assert inner[0].lines[0] == f"{prediction.verdict}."
    assert inner[1].lines[0] == f"{sizes.verdict}."


def test_without_a_path_they_come_last_and_without_any_nothing_changes() -> None:
    page = report_sections.page(by_hand())
    assert with_predictions(page, [elsewhere()]).sections[-1].title == TITLE
    assert with_predictions(page, []) is page
