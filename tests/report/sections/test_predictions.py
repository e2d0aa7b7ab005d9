from dataclasses import dataclass

from dask_efficiency.report.sections.predictions import with_predictions
from dask_efficiency.show.document import Document, Section, section

TITLE = "Simulation: what it would take elsewhere"


@dataclass(frozen=True)
class Elsewhere:
    section: Section


def page(*titles: str) -> Document:
    return Document("Report", "", "Said", tuple(section(title, "So it was.") for title in titles))


def test_predictions_stand_behind_the_critical_path() -> None:
    one, other = section("On 16 workers", "1 s."), section("By number of workers", "2 s.")
    found = with_predictions(page("Factors", "Critical path: why", "Notes"), [Elsewhere(one), Elsewhere(other)])
    assert [part.title for part in found.sections] == ["Factors", "Critical path: why", TITLE, "Notes"]
    assert found.sections[2].sections == (one, other)


def test_without_a_path_they_come_last_and_without_any_nothing_changes() -> None:
    given = page("Factors", "Notes")
    assert with_predictions(given, [Elsewhere(section("On 16 workers", "1 s."))]).sections[-1].title == TITLE
    assert with_predictions(given, []) is given
