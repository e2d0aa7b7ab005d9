from __future__ import annotations

from pathlib import Path

from tests.report.samples import by_hand
from tests.simulation.simulation_samples import elsewhere, swept


def test_a_report_s_page_has_a_section_for_each_prediction(tmp_path: Path) -> None:
    prediction, sizes = elsewhere(), swept()
    assert [found.section.title for found in (prediction, sizes)] == [
        "On 16 workers of 2 threads",
        "By number of workers",
    ]
    assert [found.section.lines[0] for found in (prediction, sizes)] == [
        f"{prediction.headline}.",
        f"{sizes.headline}.",
    ]
    by_hand().to_html(tmp_path / "report.html", predictions=[prediction, sizes])
    page = (tmp_path / "report.html").read_text()
    assert page.index("Simulation: what it would take elsewhere") < page.index("On 16 workers of 2 threads")
